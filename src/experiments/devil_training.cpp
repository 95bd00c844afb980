#include <fmt/format.h>

#include <array>
#include <chrono>

#include "training.hpp"
#include "tsdiag/series.hpp"

/// [DEVIL] Table 2, how gradients vary in training, and Table 7, speed and memory of a step.
namespace tsdiag::experiment_list {
namespace {

/// An attention, and what the paper measured for it.
struct Variant {
    const char *label, *keys;
    double rsd;  ///< [DEVIL] Table 2
};
constexpr std::array variants = {
    Variant{"vanilla", "softmax", 0.25}, Variant{"1+elu", "linear", 0.58},
    Variant{"Performer", "performer", 0.47}, Variant{"NormAttention", "norm_attention", 0.20}};

constexpr std::array keys_table2{key_steps("400", "50000"),
                                 key_batch("8", "512"),
                                 key_rate("1e-3", "5e-4"),
                                 ExperimentKey{"layers", "1", "4", "12", "blocks"},
                                 ExperimentKey{"d", "8", "64", "768", "width"},
                                 ExperimentKey{"heads", "2", "4", "12", "heads, a divisor of d"},
                                 ExperimentKey{.name = "tokens",
                                               .tiny = "8",
                                               .quick = "64",
                                               .paper = "512",
                                               .description = "tokens n",
                                               .least = 8,
                                               .most = 4096},
                                 ExperimentKey{.name = "loss",
                                               .tiny = "mlm",
                                               .quick = "lm",
                                               .paper = "mlm",
                                               .description = "lm: a pre-norm decoder; mlm: a "
                                                              "post-norm encoder, 15 % masked",
                                               .words = "lm mlm",
                                               .numbers = false},
                                 key_trials("4", "4")};

std::vector<Trained> models_table2(const ExperimentSetting& setting) {
    std::vector<Trained> out;
    for (const Variant& v : variants) {
        const bool masked = setting.text("loss") == "mlm";
        TrainOptions options = train_options(
            setting,
            fmt::format("random:{},layers={},d={},heads={},attention={},tokens={}",
                        masked ? "bert-base" : "gpt2", setting.text("layers"), setting.text("d"),
                        setting.text("heads"), v.keys, setting.text("tokens")),
            "markov:8");
        options.loss = setting.text("loss");
        options.tokens = setting.count("tokens");
        options.adam = {.beta1 = 0.9, .beta2 = 0.98, .eps = 1e-6, .decay = 0.01};
        options.clip = 0;
        out.push_back({v.label, std::move(options)});
    }
    return out;
}

RunResult measure_table2(const ExperimentSetting& setting) {
    return trained(setting, models_table2(setting), [](const Outcome& run, Sink& out) {
        std::vector<double> norms;  // behind the warm-up, where the series is nearer to stationary
        for (std::size_t i = run.steps.size() / 10; i < run.steps.size(); ++i)
            norms.push_back(run.steps[i].grad_norm);
        const Value rsd =
            run.diverged.empty() ? dispersion(norms).rsd : undefined("training diverged");
        // Over seeds the mean is what counts; a run's own interval would be averaged away.
        out.scalar({}, "grad_rsd", rsd.value ? Value(*rsd.value) : rsd);
        if (rsd.low && rsd.high) out.scalar({}, "grad_rsd_width", (*rsd.high - *rsd.low) / 2);
    });
}

Findings find_table2(const Table& table, const ExperimentSetting&) {
    const Numbers numbers(table);
    Findings found;
    Plot norms{.title = "gradient norm",
               .x = {.title = "step"},
               .y = {.title = "|dL/dw|", .scale = Scale::log}},
        loss{.title = "training loss", .x = {.title = "step"}, .y = {.title = "L, nats"}};
    for (const Variant& v : variants) {
        norms.series.push_back(line(v.label, curve_of(table, v.label, "train_grad_norm"), true));
        loss.series.push_back(line(v.label, curve_of(table, v.label, "train_loss")));
        found.comparisons.push_back(compare(fmt::format("grad_rsd, {}", v.label),
                                            fmt::format("[DEVIL] Table 2: {:.2f}", v.rsd), v.rsd,
                                            numbers.at(v.label, "grad_rsd", "", -1)));
    }
    // Largest first, as the paper has them.
    const std::array<std::size_t, 4> order = {1, 2, 0, 3};
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
        const Variant &a = variants[order[i]], &b = variants[order[i + 1]];
        found.comparisons.push_back(order_of("grad_rsd", a.label, b.label,
                                             numbers.at(a.label, "grad_rsd", "", -1),
                                             numbers.at(b.label, "grad_rsd", "", -1), true));
    }
    for (const Variant& v : variants) {
        found.comparisons.push_back(compare(fmt::format("mean loss of the last tenth, {}", v.label),
                                            "no number", std::nullopt,
                                            numbers.at(v.label, "final_loss", "", -1)));
        const Number width = numbers.at(v.label, "grad_rsd_width", "", -1);
        if (width.value)
            found.notes.push_back(fmt::format(
                "{}: a single run's own 95 % interval (studentised block bootstrap) is {:.2g} wide "
                "to each side; the standard errors above are those between seeds.",
                v.label, *width.value));
    }
    Figure f{.name = "devil_table2",
             .title = "Gradients through training",
             .caption =
                 "Mean over seeds of the norm of the gradient of a step's batch, and of its "
                 "loss; parts of the run averaged. Bands: two standard errors."};
    f.panels = {norms, loss};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(
        "Reading: the table's four numbers are taken for 1+elu, Performer, vanilla and "
        "NormAttention, in falling order.");
    found.notes.push_back(
        "The paper does not say of which gradient the deviation is taken. Here it is the norm of "
        "the gradient of all parameters together, step by step, without clipping; a trend counts "
        "as variation.");
    return found;
}

// Table 7 ----------------------------------------------------------------------------------------

struct Timed {
    const char *label, *keys;
};
constexpr std::array timed = {Timed{"vanilla", "softmax"},
                              Timed{"1+elu", "linear"},
                              Timed{"Performer", "performer"},
                              Timed{"cosFormer", "cosformer"},
                              Timed{"FLASH quad", "flash_quad"},
                              Timed{"Linformer", "linformer"},
                              Timed{"NormAttention", "norm_attention"},
                              Timed{"DiagAttention", "diag_attention"}};

constexpr std::array keys_table7{ExperimentKey{.name = "tokens",
                                               .tiny = "8,16",
                                               .quick = "512,1024,2048",
                                               .paper = "1024,2048,3072,4096,5120",
                                               .description = "tokens n",
                                               .list = true,
                                               .least = 4,
                                               .most = 65536},
                                 ExperimentKey{"layers", "1", "1", "12", "blocks"},
                                 ExperimentKey{"d", "8", "128", "768", "width"},
                                 ExperimentKey{"heads", "2", "2", "12", "heads, a divisor of d"},
                                 key_trials("3", "5")};

double seconds_of(const std::function<void()>& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Bytes of tensors that the work holds at most, beyond those that were there before.
double bytes_of_tensors(const std::function<void()>& work) {
    restart_cpu_peak();
    const TensorBytes before = cpu_bytes();
    work();
    return double(cpu_bytes().peak - before.now);
}

RunResult measure_table7(const ExperimentSetting& setting) {
    RunResult result;
    const std::vector<Index> all = setting.counts("tokens");
    double done = 0;
    for (const Timed& t : timed) {
        Table table(t.label);
        for (const Index n : all) {
            const RandomModel drawn = random_model(fmt::format(
                "bert-base,layers={},d={},heads={},attention={},tokens={},vocab=64",
                setting.text("layers"), setting.text("d"), setting.text("heads"), t.keys, n));
            const std::shared_ptr<const Weights> weights = resident_weights(
                random_weights(drawn, weights_rng(setting.seed(), 0), cpu(), Type::f32));
            const Model model(drawn.spec, weights, cpu(), Type::f32);
            Input input;
            Rng rng = Rng(setting.seed()).fork("input");
            Loss loss{.kind = Loss::Kind::tokens};
            for (Index i = 0; i < n; ++i) {
                input.ids.push_back(Index(rng.below(64)));
                loss.rows.push_back(i);
                loss.targets.push_back(input.ids.back());
            }
            const auto forward = [&] { model.step(input, loss, {.gradients = false}); };
            const auto step = [&] { model.step(input, loss); };
            step();  // weights are drawn, memory is known
            for (Index trial = 0; trial < setting.count("trials"); ++trial) {
                table.point({}, "forward_rate", double(n), double(n) / seconds_of(forward));
                table.point({}, "step_rate", double(n), double(n) / seconds_of(step));
            }
            table.point({}, "step_bytes", double(n), bytes_of_tensors(step));
            done += 1 / double(timed.size() * all.size());
            if (setting.progress()) setting.progress()({.phase = "measure", .fraction = done});
        }
        result.table.append(table);
    }
    return result;
}

Findings find_table7(const Table& table, const ExperimentSetting& setting) {
    Findings found;
    const Axis tokens{.title = "tokens n", .scale = Scale::log};
    Plot forward{
        .title = "forward", .x = tokens, .y = {.title = "tokens a second", .scale = Scale::log}};
    Plot step = forward, bytes = forward;
    step.title = "forward and backward";
    bytes.title = "memory of forward and backward";
    bytes.y.title = "bytes";
    const std::vector<Index> all = setting.counts("tokens");
    const double least = double(all.front()), most = double(all.back());
    for (const Timed& t : timed) {
        const auto rate = curve_of(table, t.label, "step_rate");
        forward.series.push_back(line(t.label, curve_of(table, t.label, "forward_rate"), true));
        step.series.push_back(line(t.label, rate, true));
        bytes.series.push_back(line(t.label, curve_of(table, t.label, "step_bytes"), true));
        found.comparisons.push_back(compare(
            fmt::format("exponent of the seconds of a step in n, {} to {}, {}", least, most,
                        t.label),
            std::string(t.label) == "vanilla" ? "quadratic where attention rules"
                                              : "linear but for quadratic variants",
            std::nullopt, scaled(exponent(least, rate.at(least), most, rate.at(most)), -1, 1)));
    }
    Figure f{.name = "devil_table7",
             .title = "Speed and memory by length",
             .caption =
                 "One sample through the model; the gradient by all parameters. Means and "
                 "two standard errors of repeated timings on this machine."};
    f.panels = {forward, step, bytes};
    f.alt = in_words(f.panels);
    found.figures.push_back(std::move(f));
    found.notes.push_back(
        "Seconds and bytes are those of this machine and this moment: the table is not the same "
        "twice, and it is not to be set beside a GPU's numbers. The exponents are.");
    found.notes.push_back(
        "Everything but attention is linear in n, so exponents lie between 1 and that of the "
        "attention. The gradient sweep forms P of every variant, which costs n^2 also where the "
        "forward pass does not.");
    return found;
}

}  // namespace

extern const ExperimentEntry devil_table2 = {
    .name = "devil.table2",
    .title = "How much gradients vary in training, by attention",
    .source = "[DEVIL] Table 2",
    .claim =
        "Kernel attention trains with unbounded gradients: the relative standard deviation of "
        "the gradient is 0.58 for 1+elu and 0.47 for Performer, against 0.25 for softmax attention "
        "and 0.20 for NormAttention.",
    .method =
        "At paper scale masked-token training as in the paper's RoBERTa recipe (post-norm encoder, "
        "AdamW with betas 0.9 and 0.98); at quick scale, where masked training does not leave its "
        "plateau within the steps, next tokens with a small decoder. A Markov chain of second "
        "order "
        "over 8 symbols; each attention with the same seeds. grad_rsd = std(g)/mean(g) of the "
        "gradient norms behind the warm-up.",
    .table =
        "grad_rsd, grad_rsd_width (half of a run's own interval), final_loss, final_accuracy, "
        "diverged of each attention; curves train_loss, train_grad_norm and accuracy over steps",
    .keys = keys_table2,
    .takes_data = true,
    .measure = measure_table2,
    .find = find_table2};

extern const ExperimentEntry devil_table7 = {
    .name = "devil.table7",
    .title = "Speed and memory against the length of the input",
    .source = "[DEVIL] Table 7",
    .claim =
        "From 1K to 5K tokens linear attentions keep their speed and memory a token, where "
        "softmax attention slows down and runs out of memory.",
    .method =
        "A drawn encoder, one sample on the CPU in float32: tokens a second forward, and "
        "forward with the gradient by all parameters; the bytes of "
        "tensors held at once.",
    .table =
        "curves forward_rate, step_rate (tokens a second) and step_bytes over the tokens, of "
        "each attention",
    .keys = keys_table7,
    .timed = true,
    .measure = measure_table7,
    .find = find_table7};

}  // namespace tsdiag::experiment_list
