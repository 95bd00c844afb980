#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <unordered_map>

#include "draw.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/weights.hpp"

/// Parsing of `random:`, and weights drawn on demand.
namespace tsdiag {
namespace {

/// "d=512,heads=8" as pairs.
Keys split_keys(std::string_view name, std::string_view text) {
    Keys out;
    while (!text.empty()) {
        const std::size_t comma = text.find(',');
        const std::string_view item = text.substr(0, comma);
        text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
        const std::size_t equals = item.find('=');
        if (equals == std::string_view::npos || equals == 0 || equals + 1 == item.size())
            throw UsageError(
                fmt::format("random:{}: '{}' is not of the form key=value", name, item));
        const std::string key(item.substr(0, equals));
        for (const auto& [known, value] : out)
            if (known == key)
                throw UsageError(fmt::format("random:{}: key '{}' was given twice", name, key));
        out.emplace_back(key, item.substr(equals + 1));
    }
    return out;
}

class RandomWeights final : public Weights {
  public:
    RandomWeights(const RandomModel& model, Rng rng, const Backend& backend, Type type)
        : tensors_(model.tensors), rng_(rng), backend_(backend), type_(type) {
        for (const DrawnTensor& t : tensors_) index_.emplace(t.name, &t);
    }

    bool has(std::string_view name) const override { return index_.contains(std::string(name)); }
    std::vector<std::string> names() const override {
        std::vector<std::string> out;
        for (const DrawnTensor& t : tensors_) out.push_back(t.name);
        return out;
    }
    Tensor get(std::string_view name) const override {
        const DrawnTensor& t = find(name);
        const Draw::Law law = t.draw.law;
        const bool at_once = !by_rows(t) && t.draw.zero_row < 0;
        const double s = t.draw.spread;
        if (at_once && law == Draw::Law::normal)
            return random_tensor(backend_, t.shape, type_, Law::normal, rng_.fork(t.name), 0, s);
        if (at_once && law == Draw::Law::uniform)
            return random_tensor(backend_, t.shape, type_, Law::uniform, rng_.fork(t.name), -s,
                                 2 * s);
        return type_ == Type::f32 ? whole<float>(t) : whole<double>(t);
    }
    Tensor rows(std::string_view name, std::span<const Index> rows) const override {
        const DrawnTensor& t = find(name);
        if (!by_rows(t)) return Weights::rows(name, rows);
        return type_ == Type::f32 ? some_rows<float>(t, rows) : some_rows<double>(t, rows);
    }

  private:
    const DrawnTensor& find(std::string_view name) const {
        const auto found = index_.find(std::string(name));
        if (found == index_.end())
            throw FormatError(fmt::format("the random model has no parameter '{}'", name));
        return *found->second;
    }

    /// The vocabulary is drawn by rows, each from its own stream, so that a few rows are cheap.
    static bool by_rows(const DrawnTensor& t) { return t.name == "embed.token"; }

    template <class T>
    static void fill_unit(const Rng& rng, std::span<T> out) {
        rng.fill_normal(out, 0, 1);
        double squares = 0;
        for (const T x : out) squares += double(x) * double(x);
        for (T& x : out) x = T(double(x) / std::sqrt(squares));
    }

    /// An element outside is drawn again from a stream of its own.
    template <class T>
    static void fill_truncated(const Rng& rng, double deviation, std::span<T> out) {
        rng.fill_normal(out, 0, deviation);
        for (std::size_t i = 0; i < out.size(); ++i)
            for (std::uint64_t again = 0; std::abs(double(out[i])) > 2 * deviation; ++again)
                rng.fork(std::uint64_t(i)).fork(again).fill_normal(out.subspan(i, 1), 0, deviation);
    }

    template <class T>
    static void fill(const Draw& draw, const Rng& rng, std::span<T> out) {
        switch (draw.law) {
            case Draw::Law::zero:
                return std::fill(out.begin(), out.end(), T(0));
            case Draw::Law::one:
                return std::fill(out.begin(), out.end(), T(1));
            case Draw::Law::constant:
                return std::fill(out.begin(), out.end(), T(draw.spread));
            case Draw::Law::normal:
                return rng.fill_normal(out, 0, draw.spread);
            case Draw::Law::truncated:
                return fill_truncated(rng, draw.spread, out);
            case Draw::Law::uniform:
                return rng.fill_uniform(out, -draw.spread, draw.spread);
            case Draw::Law::unit:
                return fill_unit(rng, out);
        }
    }

    template <class T>
    void fill_row(const DrawnTensor& t, Index row, std::span<T> out) const {
        if (row == t.draw.zero_row) return std::fill(out.begin(), out.end(), T(0));
        fill(t.draw, rng_.fork(t.name).fork(std::uint64_t(row)), out);
    }

    template <class T>
    Tensor whole(const DrawnTensor& t) const {
        return Tensor::filled(backend_, t.shape, [&](std::span<T> values) {
            const auto cols = std::size_t(t.shape.cols);
            const auto row = [&](Index r) { return values.subspan(std::size_t(r) * cols, cols); };
            if (by_rows(t)) {
                for (Index r = 0; r < t.shape.rows; ++r) fill_row(t, r, row(r));
                return;
            }
            fill(t.draw, rng_.fork(t.name), values);
            const Index z = t.draw.zero_row;
            if (z >= 0 && z < t.shape.rows) std::fill(row(z).begin(), row(z).end(), T(0));
        });
    }

    template <class T>
    Tensor some_rows(const DrawnTensor& t, std::span<const Index> rows) const {
        const auto cols = std::size_t(t.shape.cols);
        std::vector<T> values(rows.size() * cols);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            if (rows[i] < 0 || rows[i] >= t.shape.rows)
                throw UsageError(fmt::format("row {} of '{}' was requested, but it has {} rows",
                                             rows[i], t.name, t.shape.rows));
            fill_row(t, rows[i], std::span<T>(values).subspan(i * cols, cols));
        }
        return Tensor::from_host(backend_, {1, Index(rows.size()), t.shape.cols},
                                 std::span<const T>(values), type_);
    }

    std::vector<DrawnTensor> tensors_;
    Rng rng_;
    const Backend& backend_;
    Type type_;
    std::unordered_map<std::string, const DrawnTensor*> index_;
};

}  // namespace

RandomModel random_model(std::string_view text) {
    const std::size_t comma = text.find(',');
    const std::string name(text.substr(0, comma));
    const std::string_view rest =
        comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    std::vector<std::string_view> known;
    for (const ArchitectureEntry* entry : architectures()) {
        if (entry->draw == nullptr) continue;
        for (const std::string_view candidate : entry->random_names()) {
            if (candidate == name) return entry->draw(name, split_keys(name, rest));
            known.push_back(candidate);
        }
    }
    std::vector<std::string_view> alike;
    for (const std::string_view candidate : known)
        if (!name.empty() && candidate.starts_with(name)) alike.push_back(candidate);
    const std::string near = nearest(name, known);
    if (alike.empty() && !near.empty()) alike.push_back(near);
    throw UsageError(
        fmt::format("random:{}: unknown model; {}", name,
                    alike.empty() ? "tsdiag list random names all of them"
                                  : fmt::format("did you mean '{}'?", fmt::join(alike, "', '"))));
}

std::unique_ptr<Weights> random_weights(const RandomModel& model, Rng rng, const Backend& backend,
                                        Type type) {
    return std::make_unique<RandomWeights>(model, rng, backend, type);
}

}  // namespace tsdiag
