#include "tsdiag/train.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "data.hpp"
#include "log.hpp"
#include "optimiser.hpp"
#include "run_folder.hpp"
#include "settings.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

using namespace training;

constexpr Type weight_type = Type::f32;
constexpr const char* classifier = "classifier";

/// Records the values of probes at a step of training.
class StepSink final : public Sink {
  public:
    StepSink(Sink& out, Index step) : out_(out), step_(step) {}
    void scalar(const Place& at, std::string_view metric, const Value& value) override {
        out_.scalar(moved(at), metric, value);
    }
    void point(const Place& at, std::string_view curve, double x, const Value& y) override {
        out_.point(moved(at), curve, x, y);
    }
    void matrix(Map map) override {
        map.at.step = step_;
        out_.matrix(std::move(map));
    }

  private:
    Place moved(Place at) const {
        at.step = step_;
        return at;
    }
    Sink& out_;
    Index step_;
};

/// The random model with the vocabulary of the data where it names none.
SubjectOptions with_vocabulary(SubjectOptions subject, Index vocabulary) {
    const bool random = subject.model.starts_with("random:");
    if (random && vocabulary > 0 && subject.model.find("vocab=") == std::string::npos)
        subject.model += fmt::format(",vocab={}", vocabulary);
    return subject;
}

/// The subject with a vocabulary for the data.
Subject subject_for(const SubjectOptions& options, const Data& data) {
    const Index symbols = data.vocabulary();
    Subject subject = open_subject(with_vocabulary(options, symbols));
    const Index needed = subject.file ? symbols : ids_of(subject.random.spec, symbols);
    return needed == symbols ? subject : open_subject(with_vocabulary(options, needed));
}

/// A batch of samples.
struct Examples {
    std::vector<Input> inputs;
    std::vector<Loss> losses;
    void add(Example one) {
        inputs.push_back(std::move(one.input));
        losses.push_back(one.loss);
        if (!one.second) return;
        inputs.push_back(std::move(*one.second));
        losses.push_back(std::move(one.loss));
    }
};

class Training {
  public:
    explicit Training(const TrainOptions& options)
        : options_(options),
          backend_(open_backend(options.device)),
          loss_(options.loss),
          data_(open_data(options.data, loss_)),
          subject_(subject_for(options.subject, *data_)),
          spec_(checked_spec()),
          draws_(spec_.provenance.draws.value_or(Draws{.seed = options.seed})),
          fit_{spec_, backend_, weight_type, settled_tokens()},
          together_(samples_together(spec_, fit_.tokens, options.batch, backend_)),
          parameters_(std::make_shared<Parameters>()),
          optimiser_(options.adam),
          folder_(options.directory, options.measured) {
        const Index concurrent = backend_.host_memory() ? omp_get_max_threads() : 1;
        require_memory(spec_, fit_.tokens, std::min(options.batch, concurrent * together_),
                       backend_);
        contents_ = digest_of_file(options.data);
        data_->require(fit_);
        count_epochs();
        draw_parameters();
    }

    TrainResult run() {
        restart_shortages();
        describe();
        Index step = options_.resume ? resumed() : 0;
        const Model model(spec_, parameters_, backend_, weight_type);
        if (step == 0) {
            rehearse(model);
            folder_.begin(data_->words(spec_));
        }
        if (step == 0) observe(model, 0);
        bool stopped = false;
        while (step < options_.steps && !stopped) {
            ++step;
            update(model, step);
            stopped = step == options_.stop_after;
            if (options_.progress && !options_.progress(result_.steps.back())) stopped = true;
            observe(model, step);
            const Index every =
                options_.save_every > 0 ? options_.save_every : options_.probe_every;
            const bool due = every > 0 && step % every == 0;
            if (due || stopped || step == options_.steps) save(step);
        }
        result_.finished = step == options_.steps;
        if (result_.finished && options_.finished) {
            std::vector<Input> inputs;
            for (Example& e : probed()) inputs.push_back(std::move(e.input));
            options_.finished(model, inputs);
        }
        note_device();
        result_.run = record_.json();
        folder_.finish();
        for (const auto& [name, tensor] : parameters_->all())
            result_.parameters.emplace_back(name, tensor);
        return std::move(result_);
    }

  private:
    const ModelSpec& checked_spec() const {
        if (subject_.is_trace())
            throw UsageError(fmt::format("{}: is a trace, expected a model.", subject_.argument));
        return subject_.spec();
    }
    Index settled_tokens() const {
        constexpr Index usual = 128;
        if (options_.tokens > 0) return options_.tokens;
        return fitting_tokens(spec_, usual);
    }

    void count_epochs() {
        if (options_.epochs == 0) return;
        if (data_->size() == 0)
            throw UsageError(
                fmt::format("--epochs: {} has no end; expected --steps.", data_->description()));
        const double steps =
            std::ceil(options_.epochs * double(data_->size()) / double(options_.batch));
        if (!(steps >= 1 && steps <= 1e12))
            throw UsageError(fmt::format("--epochs {}: gives {} steps, expected 1 to 1e12.",
                                         options_.epochs, steps));
        options_.steps = Index(steps);
    }

    void draw_parameters() {
        std::shared_ptr<const Weights> weights;
        if (subject_.file)
            weights = checkpoint_weights(subject_.file, subject_.architecture, backend_,
                                         weight_type, false);
        else
            weights = random_weights(subject_.random, weights_rng(options_.seed, 0), backend_,
                                     weight_type);
        for (const std::string& name : weights->names())
            parameters_->set(name,
                             map(Unary::copy, weights->get(name)));  // a mapped file is read-only
        start_from_given();
        for (const std::string& name : parameters_->names()) {
            const std::vector<std::string> all = applied_together(*parameters_, name);
            if (!backend_.fuses() || all.size() == 1 || all.front() != name) continue;
            std::vector<Tensor> values;
            for (const std::string& n : all) values.push_back(parameters_->get(n));
            values = adjacent(values);
            for (std::size_t i = 0; i < all.size(); ++i) parameters_->set(all[i], values[i]);
        }
        if (data_->classes() > 0) {
            const Shape shape{1, data_->classes(), (data_->pairs() ? 4 : 1) * spec_.last_width()};
            if (parameters_->has(classifier) && parameters_->get(classifier).shape() == shape)
                return;
            const Rng rng = weights_rng(options_.seed, 0).fork(classifier);
            parameters_->set(classifier, Tensor::filled(backend_, shape, [&](std::span<float> w) {
                                 rng.fill_normal(w, 0, 1 / std::sqrt(double(spec_.last_width())));
                             }));
        }
    }

    void start_from_given() {
        if (!options_.start.empty() && !options_.directory.empty())
            throw UsageError("a training that is recorded begins with the parameters of a file.");
        for (const auto& [name, tensor] : options_.start) {
            const bool own = parameters_->has(name);
            if (!own && name != classifier)
                throw UsageError(fmt::format("{} has no parameter '{}'.", spec_.name, name));
            if (own && parameters_->get(name).shape() != tensor.shape())
                throw UsageError(
                    fmt::format("parameter '{}' of {} has another shape than its initial value.",
                                name, spec_.name));
            parameters_->set(name, map(Unary::copy, tensor));  // updated in place
        }
    }

    Example complete(Example example) const {
        if (data_->classes() > 0) example.loss.classifier = parameters_->get(classifier);
        return example;
    }

    Example held_out(Index i) const {
        return complete(data_->held_out(fit_, rng_.fork("data"), i));
    }

    /// The held-out samples of the probes.
    std::vector<Example> probed() const {
        std::vector<Example> out;
        for (Index i = 0; i < std::min(options_.probe_samples, data_->held_out()); ++i)
            out.push_back(held_out(i));
        return out;
    }

    /// work(first, count) for each batch of samples; runs the returned functions in order.  On a
    /// CPU batches run concurrently; one batch fills a device.
    void each_group(
        Index samples,
        const std::function<std::function<void()>(Index first, Index count)>& work) const {
        const auto group = [&](Index i) {
            const Index first = i * together_;
            return work(first, std::min(together_, samples - first));
        };
        const Index groups = (samples + together_ - 1) / together_;
        if (backend_.host_memory()) return in_order(groups, group);
        for (Index i = 0; i < groups; ++i) group(i)();
    }

    void update(const Model& model, Index step) {
        std::vector<std::pair<std::string, Tensor>> sum;
        double loss = 0;
        try {
            each_group(options_.batch, [&](Index first, Index count) -> std::function<void()> {
                Examples some;
                StepSettings settings{.dropout = options_.dropout,
                                      .attention_rng = weights_rng(draws_.seed, 0),
                                      .update = drawn(step).last()};
                for (Index b = first; b < first + count; ++b) {
                    some.add(complete(
                        data_->training(fit_, rng_.fork("data"), (step - 1) * options_.batch + b)));
                    const Rng rng =
                        rng_.fork("dropout").fork(std::uint64_t(step)).fork(std::uint64_t(b));
                    settings.rngs.push_back(rng);
                    if (data_->pairs()) settings.rngs.push_back(rng.fork("second"));
                }
                const auto found =
                    std::make_shared<StepResult>(model.step(some.inputs, some.losses, settings));
                return [&, found] {
                    loss += found->loss;
                    gather(sum, found->gradients);
                };
            });
        } catch (const NonFiniteError& error) {
            const std::string what = error.what();  // after the comma: advice for a probe
            throw NonFiniteError(fmt::format("step {}: {}{}", step,
                                             what.substr(0, what.find(", although")), kept()));
        }
        apply(step, loss / double(options_.batch), sum);
    }

    static void gather(std::vector<std::pair<std::string, Tensor>>& sum,
                       const std::vector<std::pair<std::string, Tensor>>& more) {
        for (const auto& [name, g] : more) {
            const auto at = std::ranges::find(sum, name, &std::pair<std::string, Tensor>::first);
            if (at == sum.end())
                sum.emplace_back(name, g);
            else
                at->second = add(std::exchange(at->second, {}), g);
        }
    }

    void apply(Index step, double loss, const std::vector<std::pair<std::string, Tensor>>& sum) {
        const double mean = 1 / double(options_.batch);
        TrainStep row{
            .step = step, .loss = loss, .rate = options_.schedule.at(step, options_.steps)};
        row.layer_norms.resize(spec_.blocks.size() + 1);
        std::vector<Tensor> gradients;
        for (const auto& [name, g] : sum) gradients.push_back(g);
        const std::vector<Wide> norms = squared_norms(gradients);
        double squares = 0;
        for (std::size_t i = 0; i < norms.size(); ++i) {
            const double norm = norms[i] * mean * mean;
            row.layer_norms[layer_of(sum[i].first)] += norm;
            squares += norm;
        }
        for (double& norm : row.layer_norms) norm = std::sqrt(norm);
        row.grad_norm = std::sqrt(squares);
        if (!std::isfinite(loss) || !std::isfinite(row.grad_norm)) refuse(step, loss, sum);
        const bool clips = options_.clip > 0 && row.grad_norm > options_.clip;
        const double factor = clips ? mean * options_.clip / row.grad_norm : mean;
        optimiser_.update(*parameters_, sum, factor, row.rate, step);
        require_finite_parameters(step);
        folder_.add(row);
        result_.steps.push_back(std::move(row));
    }

    /// To be called before they are saved.
    void require_finite_parameters(Index step) const {
        std::vector<Tensor> all;
        for (const auto& [name, w] : parameters_->all()) all.push_back(w);
        auto found = first_nonfinite_later(all);
        auto bad = found.get().begin();
        for (const auto& [name, w] : parameters_->all())
            if (const Index at = *bad++; at >= 0)
                throw NonFiniteError(
                    fmt::format("step {}: the update makes '{}' infinite or NaN, at element {}{}",
                                step, name, at, kept()));
    }

    /// Names the first non-finite gradient of the backward pass: the last one in model order.
    [[noreturn]] void refuse(Index step, double loss,
                             const std::vector<std::pair<std::string, Tensor>>& sum) const {
        if (!std::isfinite(loss))
            throw NonFiniteError(fmt::format("step {}: the loss is {}{}", step, loss, kept()));
        for (auto at = sum.rbegin(); at != sum.rend(); ++at)
            if (const Index bad = first_nonfinite(at->second); bad >= 0)
                throw NonFiniteError(
                    fmt::format("step {}: '{}' has the first non-finite gradient of the backward "
                                "pass, at element {}{}",
                                step, at->first, bad, kept()));
        throw NonFiniteError(
            fmt::format("step {}: the norm of the gradients is too large for a "
                        "double{}",
                        step, kept()));
    }

    /// "; the last good checkpoint is DIR/checkpoints/step-N."
    std::string kept() const {
        const Index last = folder_.last_saved();
        const std::string hint = "; a lower --rate, --clip or a longer --warmup may help";
        if (last < 0) return hint + ".";
        return fmt::format("{}; the last good checkpoint is {}/checkpoints/step-{}.", hint,
                           options_.directory.string(), last);
    }

    std::size_t layer_of(const std::string& name) const {
        if (!name.starts_with("layer.")) return spec_.blocks.size();
        std::size_t layer = 0;
        std::from_chars(name.data() + 6, name.data() + name.size(), layer);
        return layer;
    }

    /// Evaluates and probes where it is due after `step` updates.
    void observe(const Model& model, Index step) {
        const auto due = [&](Index every) { return every > 0 && step % every == 0; };
        if (due(options_.eval_every) || step == options_.steps) evaluate(model, step);
        if (!due(options_.probe_every)) return;
        std::vector<Input> inputs;
        std::vector<Loss> losses;
        for (Example& e : probed()) {
            inputs.push_back(std::move(e.input));
            if (!data_->pairs())  // a pair's loss is not of one sample
                losses.push_back(std::move(e.loss));
        }
        RunOptions run;
        run.probes = options_.probes;
        run.seed = options_.seed;
        run.draws = drawn(step);
        StepSink sink(result_.table, step);
        measure(model, inputs, losses, run, backend_, weight_type, sink);
        folder_.add(result_.table);
    }

    /// What attentions drew in update `step`; evaluations and probes after it have it, too.
    Draws drawn(Index step) const { return {draws_.seed, draws_.updates + step}; }

    void evaluate(const Model& model, Index step) {
        Evaluation row{.step = step};
        row.of_class.resize(std::size_t(data_->classes()));
        row.right_of_class.resize(row.of_class.size());
        Index correct = 0;
        const Index count = std::min(options_.eval_samples, data_->held_out());
        each_group(count, [&](Index first, Index some) -> std::function<void()> {
            Examples examples;
            for (Index i = first; i < first + some; ++i) examples.add(held_out(i));
            const StepResult found = model.step(examples.inputs, examples.losses,
                                                {.gradients = false,
                                                 .hits = true,
                                                 .attention_rng = weights_rng(draws_.seed, 0),
                                                 .update = drawn(step).last()});
            std::vector<Index> labels;
            const std::size_t step_of_labels = data_->pairs() ? 2 : 1;
            for (std::size_t i = 0; data_->classes() > 0 && i < examples.losses.size();
                 i += step_of_labels)
                labels.push_back(examples.losses[i].label);
            return [&, found, labels] {
                row.loss += found.loss;
                correct += found.correct;
                row.predictions += found.predictions;
                for (std::size_t i = 0; i < labels.size(); ++i) {
                    ++row.of_class[std::size_t(labels[i])];
                    row.right_of_class[std::size_t(labels[i])] += found.hit[i] ? 1 : 0;
                }
            };
        });
        if (count == 0) return;
        row.loss /= double(count);
        row.accuracy = double(correct) / double(std::max<Index>(row.predictions, 1));
        folder_.add(row);
        result_.evaluations.push_back(row);
    }

    RunRecord::Training identity() const {
        return identity_of(options_, spec_, loss_, contents_, fit_.tokens);
    }

    void describe() {
        Index count = 0;
        for (const auto& [name, tensor] : parameters_->all()) count += tensor.shape().count();
        result_.table = Table(options_.subject.model);
        record_.measured = options_.measured;
        record_.seed = options_.seed;
        record_.device = backend_.name();
        record_.device_name = backend_.device_name();
        record_.threads = omp_get_max_threads();
        record_.dtype = "float32";
        record_.model.argument = subject_.argument;
        record_.model.deescalated = subject_.deescalated();
        record_.parameters = count;
        record_.samples = data_->description();
        record_.train = identity();
        record_.guess = guess();
        for (const std::string& line : spec_.provenance.warnings) warn(line);
        for (const std::string& line : remarks_on_attention(spec_, data_->fewest_tokens(fit_)))
            warn(line);
    }

    /// The loss of a guess that knows how often each target occurs: the entropy of the targets of
    /// the first samples, with the correction of Miller and Madow for their number.  0 where there
    /// are too few of each to tell.
    double guess() const {
        constexpr Index enough_samples = 512, enough_targets = 1 << 16, least_of_a_kind = 10;
        const Index most =
            data_->size() > 0 ? std::min(data_->size(), enough_samples) : enough_samples;
        std::map<Index, Index> counts;
        Index all = 0;
        for (Index i = 0; i < most && all < enough_targets; ++i) {
            const Loss loss = data_->training(fit_, rng_.fork("data"), i).loss;
            const std::vector<Index> targets =
                loss.kind == Loss::Kind::tokens ? loss.targets : std::vector<Index>{loss.label};
            for (const Index target : targets) ++counts[target], ++all;
        }
        const double kinds = double(counts.size());
        if (all == 0 || double(all) < double(least_of_a_kind) * kinds) return 0;
        double entropy = (kinds - 1) / (2 * double(all));
        for (const auto& [target, count] : counts)
            entropy += double(count) / double(all) * std::log(double(all) / double(count));
        return std::min(entropy, std::log(kinds));
    }

    /// Runs one sample forward and backward, so that errors are found before anything is written.
    void rehearse(const Model& model) const {
        try {
            Examples one;
            one.add(complete(data_->training(fit_, rng_.fork("data"), 0)));
            model.step(one.inputs, one.losses);
        } catch (const NonFiniteError&) {  // the first step reports it with its number
        }
    }

    /// Reads the last checkpoint and the logs up to it.
    Index resumed() {
        std::vector<std::string> notes;
        const Index step = folder_.resume(identity(), *parameters_, optimiser_, result_, notes);
        record_.measured = folder_.measured();
        for (const std::string& note : notes) warn(note);
        return step;
    }

    void save(Index step) {
        ModelSpec spec = spec_;
        spec.provenance.draws = drawn(step);
        warn(folder_.save(step, spec, *parameters_, optimiser_, identity()));
    }

    void warn(const std::string& text) {
        std::vector<std::string>& said = record_.warnings;
        if (!text.empty() && std::ranges::find(said, text) == said.end()) said.push_back(text);
    }

    /// Warns of skipped devices and of out-of-memory fallbacks.
    void note_device() {
        warn(passed_over_devices(options_.device));
        record_.shortages = shortages();
        for (const std::string& line : record_.shortages) warn(line);
    }

    TrainOptions options_;  ///< epochs as steps
    const Backend& backend_;
    std::string loss_;
    std::string contents_;  ///< digest of the data file; empty: no file
    std::unique_ptr<Data> data_;
    Subject subject_;
    const ModelSpec& spec_;
    Draws draws_;  ///< before the first step
    Fit fit_;
    Index together_;  ///< samples per forward and backward pass
    std::shared_ptr<Parameters> parameters_;
    Optimiser optimiser_;
    RunFolder folder_;
    RunRecord record_;
    Rng rng_ = Rng(options_.seed).fork("train");
    TrainResult result_;
};

}  // namespace

TrainResult recorded_training(const std::filesystem::path& directory, const Json& run) {
    TrainResult result;
    result.run = run;
    const RunRecord::Training train = RunRecord(run).train.value_or(RunRecord::Training());
    result.table = Table(train.model);
    training::read_logs(directory, nullptr, result);
    result.finished = train.steps == std::ssize(result.steps);
    return result;
}

TrainResult train(const TrainOptions& options) {
    require_sane(options);
    return Training(options).run();
}

}  // namespace tsdiag
