#include <fmt/format.h>

#include "options.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// Options of the commands that run a model: probe, watch, train.
namespace tsdiag::cli {
namespace {

Type parse_dtype(const std::string& word) {
    if (word == "f32" || word == "float32") return Type::f32;
    if (word == "f64" || word == "float64") return Type::f64;
    throw UsageError(fmt::format("--dtype: '{}' is not f32 or f64.", word));
}

Products parse_products(const std::string& word) {
    if (word == "tf32") return Products::tf32;
    if (word == "bf16") return Products::bf16;
    throw UsageError(fmt::format("--fast: '{}' is not tf32 or bf16.", word));
}

double parse_tolerance(const std::string& word) {
    const double x = parse_number(word, "--tolerance");
    if (!(x >= 1e-13 && x <= 0.01))
        throw UsageError(fmt::format("--tolerance {}: expected 1e-13 to 0.01.", word));
    return x;
}

double parse_scale(const std::string& word) {
    const double x = parse_number(word, "--scale");
    if (!(x > 0)) throw UsageError(fmt::format("--scale {}: expected a number above 0.", word));
    return x;
}

double parse_gain(const std::string& word) {
    const double x = parse_number(word, "--a2");
    if (!(x >= 0))
        throw UsageError(fmt::format("--a2 {}: is a squared gain, expected 0 or more.", word));
    return x;
}

std::string parse_route(const std::string& word) {
    std::string known = "auto";
    for (const SpectralRoute& route : spectral_routes()) {
        if (!route.on_request) continue;
        if (word == route.name) return word;
        known += fmt::format(", {}", route.name);
    }
    if (word == "auto") return word;
    throw UsageError(fmt::format("--spectra: '{}' is not one of {}.", word, known));
}

CLI::Option* fast(CLI::App& app, Products& products) {
    return value(app, "--fast", "TYPE",
                 "bf16, or on a device tf32: round the factors of\nfloat32 products",
                 [&](const std::string& t) { products = parse_products(t); });
}

}  // namespace

void add_subject_options(CLI::App& app, SubjectOptions& subject) {
    const auto group = [](CLI::Option* option) { option->group("Model"); };
    group(text(app, "--config", subject.config, "FILE", "path of config.json if it is elsewhere"));
    group(value(app, "--n-heads", "N", "number of heads, if the file does not say",
                [&](const std::string& t) { subject.heads = parse_count(t, "--n-heads", 1); }));
    group(value(app, "--width", "N", "width of the model, to accept a pruned file",
                [&](const std::string& t) { subject.width = parse_count(t, "--width", 1); }));
    group(value(app, "--memory-tokens", "M",
                "use the first M tokens of a sample as memory\n(Transformer-XL)",
                [&](const std::string& t) {
                    subject.memory_tokens = parse_count(t, "--memory-tokens", 1);
                }));
    group(app.add_option(
                 "--ignore", subject.ignore,
                 "ignore a tensor or a key of config.json;\nrepeatable; * matches any characters")
              ->type_name("NAME")
              ->expected(1)
              ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
    group(text(app, "--map", subject.map, "FILE",
               "names of a known family for tensors that have others\n(docs/checkpoints.md)"));
    group(text(app, "--adapter", subject.adapter, "DIR",
               "adapter of PEFT (LoRA, DoRA) that changes the model"));
    group(text(app, "--base", subject.base, "DIR",
               "model of an adapter, if the adapter does not say"));
}

void add_subject(CLI::App& app, SubjectOptions& subject) {
    app.add_option("MODEL", subject.model,
                   "Hugging Face directory, its name in the Hub's cache,\ncheckpoint, trace, or "
                   "random:NAME[,key=value...]")
        ->required()
        ->type_name("");
    add_subject_options(app, subject);
}

void add_input(CLI::App& app, RunOptions& run) {
    const auto group = [](CLI::Option* option) { option->group("Input"); };
    group(text(
        app, "--input", run.input, "KIND",
        "gaussian, ids:random, ids:FILE, embeddings:FILE.npy,\nhidden:FILE.npy or image:FILE.npy"));
    group(value(app, "--text", "TEXT", "a text, by the tokenizer of the checkpoint",
                [&](const std::string& t) {
                    if (t.empty()) throw UsageError("--text: is empty, expected a text.");
                    run.text = t;
                }));
    group(text(app, "--text-file", run.text_file, "FILE", "the same, in a file"));
    group(text(app, "--text-lines", run.text_lines, "FILE",
               "texts in a file, a sample a line, each of its own length"));
    group(text(app, "--tokenizer", run.tokenizer, "FILE",
               "path of tokenizer.json if it is elsewhere"));
    group(text(app, "--images", run.images, "FILE",
               "a picture (PNG, JPEG, WebP), or a folder of them"));
    group(text(app, "--preprocessor", run.preprocessor, "FILE",
               "path of preprocessor_config.json if it is elsewhere"));
    group(value(app, "--tokens", "N", "tokens per sample (default: the model's maximum, up to 512)",
                [&](const std::string& t) { run.tokens = parse_count(t, "--tokens", 1); }));
    group(value(
        app, "--samples", "S", "number of inputs for the same weights",
        [&](const std::string& t) { run.samples = parse_count(t, "--samples", 1, most_draws); }));
    group(value(
        app, "--trials", "T", "number of draws of a random model, each with new inputs",
        [&](const std::string& t) { run.trials = parse_count(t, "--trials", 1, most_draws); }));
    group(value(app, "--seed", "K", "random seed (default 0)",
                [&](const std::string& t) { run.seed = parse_seed(t, "--seed"); }));
    group(text(app, "--loss", run.loss, "LOSS",
               "compute gradients of lm, mlm[:ID], classify[:C], square or vjp"));
    group(text(app, "--labels", run.labels, "FILE", "labels for --loss classify, one per sample"));
    group(text(app, "--mask", run.mask, "FILE.npy", "attention mask, (n) or (S, n), 1 = keep"));
}

void add_measurement(CLI::App& app, RunOptions& run) {
    const auto group = [](CLI::Option* option) { option->group("Measurement"); };
    group(value(app, "--layers", "A:B", "layers to measure, both ends included",
                [&](const std::string& t) {
                    std::tie(run.first_layer, run.last_layer) = parse_layers(t, "--layers");
                }));
    group(value(app, "--heads", "LIST", "heads to measure, such as 0,3,8:11",
                [&](const std::string& t) { run.heads = parse_indices(t, "--heads"); }));
    group(value(app, "--probes", "NAMES", "core, all (default), or names (tsdiag list metrics)",
                [&](const std::string& t) { run.probes = split(t, ','); }));
    group(value(app, "--maps", "L:H,...", "attention maps to save and draw, or all",
                [&](const std::string& t) { run.maps = parse_maps(t, "--maps"); }));
    group(value(app, "--tolerance", "X",
                "relative accuracy of lambda2_abs, delta, delta_pi (default 1e-6)",
                [&](const std::string& t) { run.tolerance = parse_tolerance(t); }));
    group(value(app, "--spectra", "ROUTE",
                "method for lambda2_abs and delta: auto (default), arnoldi, dense\nor spectra (see "
                "tsdiag list spectra)",
                [&](const std::string& t) { run.spectra = parse_route(t); }));
    group(
        value(app, "--cross-check", "N",
              "recompute lambda2_abs of N heads per layer with the library Spectra",
              [&](const std::string& t) { run.cross_check = parse_count(t, "--cross-check", 1); }));
    group(app.add_flag("--allow-nonfinite", run.allow_nonfinite,
                       "report NaN in the data as notes, not as errors"));
}

void add_trace(CLI::App& app, TraceOptions& trace) {
    const auto group = [](CLI::Option* option) { option->group("Trace"); };
    group(text(app, "--attention", trace.attention, "NAME",
               "attention that the saved P is of, or that makes P of queries and keys"));
    group(app.add_flag("--causal", trace.causal, "queries attend only up to their own position"));
    group(value(app, "--scale", "X", "scale of the logits (default 1/sqrt(head dimension))",
                [&](const std::string& t) { trace.scale = parse_scale(t); }));
    group(value(app, "--a2", "X", "gain alpha^2 |W_V W_O|_F^2 / d (default: measured from sa.L)",
                [&](const std::string& t) { trace.a2 = parse_gain(t); }));
    group(value(app, "--placement", "post|pre|parallel|branch",
                "where the norms of a layer stand, if stages inside layers are saved",
                [&](const std::string& t) { trace.placement = placement_named(t); }));
}

void add_machine(CLI::App& app, ProbeOptions& probe) {
    const auto group = [](CLI::Option* option) { option->group("Machine"); };
    group(value(app, "--dtype", "TYPE", "f32 or f64 (default f32; for a trace, its own type)",
                [&](const std::string& t) { probe.run.dtype = parse_dtype(t); }));
    group(text(app, "--device", probe.run.device, "NAME", "auto, cpu, cuda or cuda:N"));
    group(fast(app, probe.run.products));
    group(value(app, "--memory", "SIZE",
                "memory limit of the process, such as 512M or 2G\n(default: half of the machine's "
                "memory, divided "
                "by\nthe ranks on it)",
                [&](const std::string& t) { probe.run.memory = parse_size(t, "--memory"); }));
    group(value(
        app, "--batch", "B",
        "samples per batch (default: chosen by speed and memory);\non a CPU results do not depend "
        "on it",
        [&](const std::string& t) { probe.run.batch = parse_count(t, "--batch", 1, most_draws); }));
    group(
        value(app, "--threads", "N", "number of threads (default: one per core)",
              [&](const std::string& t) { probe.threads = parse_count(t, "--threads", 1, 1024); }));
}

void add_output(CLI::App& app, ProbeOptions& probe) {
    const auto group = [](CLI::Option* option) { option->group("Output"); };
    group(place(app, probe.out, "DIR", "output directory (default: NAME.tsdiag)"));
    add_paper(app, probe.look);
    group(app.add_flag("--no-report", probe.no_report, "write tables only, no report"));
    group(app.add_flag("--profile", probe.profile,
                       "print the cost of each phase and metric, and write it to\nprofile.json "
                       "(a trace that Perfetto opens)"));
    group(app.add_flag("--force", probe.force, "write into a directory that contains other files"));
    group(app.add_flag("-q,--quiet", probe.quiet, "print errors only"));
    group(app.add_flag("-v,--verbose", probe.verbose,
                       "print everything that was recognised, ignored and assumed"));
}

}  // namespace tsdiag::cli
