#include "model_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "budget.hpp"
#include "describe.hpp"
#include "hand_out.hpp"
#include "settings.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"

namespace tsdiag {
namespace {

/// Shared layers would draw the same parameters repeatedly.
bool shares_layers(const ModelSpec& spec) {
    return std::ranges::any_of(spec.blocks, [](const BlockSpec& b) { return b.shares >= 0; });
}

/// Random numbers that a trial draws for the weights of its layers.
double drawn_numbers(const Subject& subject, const std::string& redraw) {
    double count = 0;
    if (subject.kind == Subject::Kind::random)
        for (const DrawnTensor& t : subject.random.tensors)
            if (t.name.starts_with("layer.") && (redraw.empty() || t.name.ends_with(redraw)))
                count += double(t.shape.count());
    return count;
}

}  // namespace

ModelRun::ModelRun(RunContext& context, const Subject& subject, Index concurrent_trials)
    : context_(context),
      subject_(subject),
      concurrent_trials_(concurrent_trials),
      type_(context.options.dtype.value_or(Type::f32)),
      source_(context.options, subject.spec(), context.backend, type_) {
    const RunOptions& options = context.options;
    const ModelSpec& spec = subject.spec();
    const Index layers = Index(spec.blocks.size());
    if (layers == 0)
        throw FormatError(
            fmt::format("{}: has no layers, expected a transformer.", subject.argument));
    Index heads = 1;
    for (const BlockSpec& block : spec.blocks) heads = std::max(heads, block.attention.heads);
    check_selection(options, layers, heads);
    check_redraw();
    for (const std::string& line : source_.warnings()) context.run.warnings.push_back(line);

    measured_ = measurement_settings(context, layers, source_.count());
    if (source_.shortest() < source_.tokens()) measured_.probes.longest = source_.tokens();
    Table unused;
    const Measurement wanted(measured_, unused);
    if (!options.loss.empty()) losses_.emplace(options, spec, source_, context.backend, type_);
    if (!wanted.wants_gradients()) losses_.reset();
    RunSizes sizes = sizes_of(subject, type_);
    sizes.tokens = source_.tokens();
    sizes.samples = source_.count();
    sizes.trials = options.trials;
    sizes.metrics = context.metrics;
    sizes.dense = context.options.spectra == "dense";
    sizes.maps = kept_maps(options, sizes.layers, sizes.heads);
    sizes.gradients = losses_.has_value();
    sizes.head_rows = options.loss.find("lm") != std::string::npos ? spec.embedding.vocabulary : 0;
    if (!options.redraw.empty()) sizes.layer_weights = sizes.all_weights;
    settings_ = run_settings(context, sizes, concurrent_trials);

    ExtraCosts costs = extra_costs(context.metrics, wanted.wants_rows(0), source_.tokens());
    costs.gradients = losses_.has_value();
    costs.drawn = drawn_numbers(subject, options.redraw);
    seconds_ =
        estimate_seconds(spec, source_.tokens(), source_.count(), context.backend, type_, costs);

    if (subject.file)
        kept_ = checkpoint_weights(subject.file, subject.architecture, context.backend, type_,
                                   options.allow_nonfinite);
    else if (!options.redraw.empty())
        kept_ = resident_weights(
            random_weights(subject.random, weights_rng(options.seed, 0), context.backend, type_));
}

void ModelRun::check_redraw() const {
    const std::string& redraw = context_.options.redraw;
    if (redraw.empty()) return;
    if (subject_.kind != Subject::Kind::random)
        throw UsageError(fmt::format("{}: only the weights of a random model can be drawn again.",
                                     subject_.argument));
    if (drawn_numbers(subject_, redraw) == 0)
        throw UsageError(
            fmt::format("{}: no layer tensor has a name ending in '{}', expected a suffix such as "
                        "attn.v.weight.",
                        subject_.argument, redraw));
}

std::shared_ptr<const Weights> ModelRun::weights(Index trial) const {
    if (subject_.file) return kept_;
    std::shared_ptr<const Weights> drawn = random_weights(
        subject_.random, weights_rng(context_.options.seed, trial), context_.backend, type_);
    if (kept_) return spliced_weights(kept_, drawn, context_.options.redraw);
    return shares_layers(subject_.spec()) ? resident_weights(drawn) : drawn;
}

std::vector<Input> ModelRun::inputs(Index trial) const {
    return source_.samples(context_.options.redraw.empty() ? trial : 0);
}

void ModelRun::measure(Index trial, Samples chosen, Measurement& measurement,
                       const Tell& tell) const {
    RunSettings settings = settings_;
    if (const std::optional<Draws>& draws = subject_.spec().provenance.draws) {
        settings.rng = weights_rng(draws->seed, 0);
        settings.update = draws->last();
    } else
        settings.rng =
            weights_rng(context_.options.seed, context_.options.redraw.empty() ? trial : 0);
    settings.progress = [&](Index done, Index total) { tell("measure", done, total); };
    const Model model(subject_.spec(), weights(trial), context_.backend, type_);
    std::vector<Input> all = inputs(trial);
    const auto first = std::size_t(chosen.first);
    const std::size_t count = chosen.count < 0 ? all.size() : std::size_t(chosen.count);
    const auto samples = std::span(all).subspan(first, count);
    measurement.begin_trial(trial, chosen.first);
    model.run(samples, measurement, settings);
    if (!losses_) return;
    settings.progress = [&](Index done, Index total) { tell("gradients", done, total); };
    const std::vector<Loss> losses = losses_->losses(trial, all);
    model.differentiate(samples, std::span(losses).subspan(first, count), measurement, settings);
}

std::string ModelRun::Trial::bytes() const {
    RecordWriter out;
    said->write(out);
    totals.write(out);
    return out.take();
}

ModelRun::Trial ModelRun::Trial::read(std::string_view record) {
    RecordReader in(record, kept_units);
    Trial trial{std::make_shared<const Recorder>(Recorder::read(in))};
    trial.totals = Totals::read(in);
    in.end();
    return trial;
}

ModelRun::Trial ModelRun::trial(Index trial, Meter& meter) const {
    const auto said = std::make_shared<Recorder>();
    MeasurementSettings own = measured_;
    own.progress = nullptr;
    Measurement measurement(std::move(own), *said);
    const double sweeps = losses_ ? 2 : 1;
    measure(trial, {}, measurement, [&](std::string_view, Index, Index total) {
        meter.add(seconds_ / (sweeps * double(total)));
    });
    context_.backend.synchronise();  // pending work uses weights that other threads may release
    if (context_.options.derive) {
        Table table(context_.options.subject.model);
        said->replay(table);
        context_.options.derive(table, *said);
    }
    return {said, measurement.totals()};
}

void ModelRun::add(const Trial& trial) {
    trial.said->replay(context_.result.table);
    whole_.join(trial.totals);
}

void ModelRun::in_turn() {
    const RunOptions& options = context_.options;
    Measurement measurement(measured_, context_.result.table);
    for (Index trial = 0; trial < options.trials; ++trial)
        measure(trial, {}, measurement, [&](std::string_view phase, Index done, Index total) {
            const double part = double(done) / double(std::max<Index>(total, 1));
            const Index back = total - done, on = std::min(done, total - 1);
            say(options, {.phase = phase,
                          .fraction = (double(trial) + part) / double(options.trials),
                          .layer = phase == "gradients" ? back : on});
        });
    whole_ = measurement.totals();
}

Index ModelRun::blocks() const {
    constexpr Index most = 64;  // each reads the weights once
    return std::min(source_.count(), most);
}

void ModelRun::share(const Team& team) {
    settings_.team = &team;
    const std::vector<Index> own = {settings_.memory, settings_.batch};
    for (const std::string& one : team.gather(bytes_of_all(std::span(own)))) {
        const std::vector<Index> its = values_of_bytes<Index>(one);
        settings_.memory = std::min(settings_.memory, its[0]);
        settings_.batch = std::min(settings_.batch, its[1]);
    }
}

ModelRun::Trial ModelRun::block(Index block, const Layers& layers,
                                const std::function<void(double)>& tell) const {
    const Index samples = source_.count(), first = block * samples / blocks(),
                last = (block + 1) * samples / blocks();
    const auto said = std::make_shared<Recorder>();
    Trial whole{said};
    const auto add = [&](const Trial& layer) {
        said->append(*layer.said);
        said->mark();
        whole.totals.join(layer.totals);
    };
    std::ranges::for_each(layers.known, add);
    Index done = std::ssize(layers.known);
    const Index heard = settings_.first_layer + done;
    Recorder now;
    MeasurementSettings own = measured_;
    if (!layers.in_progress) own.progress = nullptr;
    own.first_heard = heard;
    Measurement* its = nullptr;
    own.layer_done = [&] {
        Trial layer{std::make_shared<Recorder>(std::exchange(now, {}))};
        if (in_layers()) layer.totals = its->take_totals();
        add(layer);
        if (in_layers() && layers.keep) layers.keep(done++, layer);
    };
    Measurement measurement(std::move(own), now);
    its = &measurement;
    if (heard < measured_.layers)
        measure(0, {first, last - first}, measurement,
                [&](std::string_view, Index at, Index total) {
                    if (tell) tell(double(at) / double(std::max<Index>(total, 1)));
                });
    said->append(now);
    whole.totals.join(measurement.totals());
    return whole;
}

void ModelRun::add(std::span<const Trial> blocks) {
    std::size_t segments = 0;
    for (const Trial& block : blocks) segments = std::max(segments, block.said->segments());
    for (std::size_t segment = 0; segment < segments; ++segment)
        for (const Trial& block : blocks)
            if (segment < block.said->segments())
                block.said->replay(context_.result.table, segment);
    for (const Trial& block : blocks) {
        block.said->replay_maps(context_.result.table);
        whole_.join(block.totals);
    }
}

std::vector<double> ModelRun::first_layer() const {
    class Output final : public Observer {
      public:
        void on_hidden(const Hidden& e) override {
            if (e.stage == "out") values = e.x.to_host<double>();
        }
        std::vector<double> values;
    } output;
    const Model model(subject_.spec(), weights(0), context_.backend, type_);
    RunSettings settings = settings_;
    settings.first_layer = settings.last_layer = 0;
    model.run(std::vector<Input>(1, inputs(0).front()), output, settings);
    return std::move(output.values);
}

void ModelRun::describe() {
    RunRecord& run = context_.run;
    run.dtype = type_ == Type::f32 ? "float32" : "float64";
    run.model = describe_model(subject_, whole_);
    run.input = source_.described();
    if (losses_) {
        run.loss = losses_->described();
        run.loss.value = whole_.loss();
    }
    run.settings.all = describe_settings(
        context_.options,
        {context_.metrics, context_.memory, std::ssize(subject_.spec().blocks), settings_.batch});
    run.schema = describe_metrics(context_.metrics);
    run.solver = describe_solver(whole_);
}

}  // namespace tsdiag
