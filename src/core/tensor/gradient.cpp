#include "tsdiag/gradient.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "record.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

/// Cotangents on their way from y to the variables.  A record is processed after all its readers,
/// which are deeper.
class Sweep {
  public:
    explicit Sweep(bool differentiable) : differentiable_(differentiable) {}

    void want(const Tensor& x) { found_.emplace(x.record().get(), Tensor()); }

    void add(const std::shared_ptr<const Record>& record, const Tensor& g,
             const std::optional<Corner>& part = {}) {
        Arrived& to = arrived(record);
        if (part) {
            to.parts.push_back({g, *part});
            return;
        }
        check(g.shape() == record->shape, "a derivative has the shape of its operand");
        to.sum = to.sum.defined() ? tsdiag::add(to.sum, g) : g;
    }

    void run() {
        while (!queue_.empty()) {
            const std::shared_ptr<const Record> record = queue_.top().record;
            queue_.pop();
            const auto at = sums_.find(record.get());
            Arrived arrived = std::move(at->second);
            sums_.erase(at);
            const auto wanted = found_.find(record.get());
            if (wanted == found_.end() && pull_parts(*record, arrived)) continue;
            const Tensor g = arrived.total(record->shape);
            if (wanted != found_.end()) wanted->second = g;
            pull(record, g);
        }
    }

    Tensor found(const Tensor& x) const {
        const Tensor& g = found_.at(x.record().get());
        return g.defined() ? g : zeros(x.backend(), x.shape(), x.type());
    }

  private:
    /// Cotangents of a tensor and of parts of it.
    struct Arrived {
        struct Part {
            Tensor g;
            Corner at;
        };
        Tensor sum;
        std::vector<Part> parts;

        Tensor total(Shape shape) {
            if (parts.empty()) return std::move(sum);
            sort();
            Tensor all = joined(shape);
            if (all.defined()) return sum.defined() ? tsdiag::add(sum, all) : all;
            for (const Part& p : parts) {
                const Tensor g = place(p.g, shape, p.at.batch, p.at.row, p.at.col);
                sum = sum.defined() ? tsdiag::add(sum, g) : g;
            }
            return std::move(sum);
        }

        void sort() {
            std::ranges::stable_sort(parts, {}, [](const Part& p) {
                return std::tuple(p.at.batch, p.at.row, p.at.col);
            });
        }
        std::vector<Tensor> tensors() const {
            std::vector<Tensor> all;
            for (const Part& p : parts) all.push_back(p.g);
            return all;
        }
        /// Whether the parts, in their order, fill `shape` along one axis.
        bool fill(Shape shape, Index Shape::*extent, Index Corner::*first) const {
            Corner next;
            for (const Part& p : parts) {
                Shape whole = p.g.shape();
                whole.*extent = shape.*extent;
                if (p.at != next || whole != shape) return false;
                next.*first += p.g.shape().*extent;
            }
            return next.*first == shape.*extent;
        }
        /// The concatenation of parts that fill `shape` along one axis; empty where they do not.
        Tensor joined(Shape shape) const {
            for (const auto& [extent, first, concat] :
                 {std::tuple(&Shape::batch, &Corner::batch, &concat_batches),
                  std::tuple(&Shape::rows, &Corner::row, &concat_rows_of),
                  std::tuple(&Shape::cols, &Corner::col, &concat_cols)})
                if (fill(shape, extent, first)) return concat(tensors());
            return {};
        }
        static Tensor concat_rows_of(std::span<const Tensor> parts) { return concat_rows(parts); }
    };
    Arrived& arrived(const std::shared_ptr<const Record>& record) {
        const auto [at, fresh] = sums_.try_emplace(record.get());
        if (fresh) queue_.push({record, arrivals_++});
        return at->second;
    }

    struct Waiting {
        std::shared_ptr<const Record> record;
        Index arrival;  ///< breaks ties, so that the order of sums is fixed
        bool operator<(const Waiting& other) const {
            return record->depth != other.record->depth ? record->depth < other.record->depth
                                                        : arrival > other.arrival;
        }
    };

    /// The cotangent of the operand from those of parts of the result, where that is possible.
    bool pull_parts(const Record& record, Arrived& arrived) {
        if (!record.of_parts || differentiable_ || arrived.parts.empty() || arrived.sum.defined())
            return false;
        arrived.sort();
        if (!arrived.fill(record.shape, &Shape::batch, &Corner::batch)) return false;
        const Record::Edge& edge = record.edges.front();
        add(edge.operand, record.of_parts(arrived.tensors()), edge.part);
        return true;
    }

    /// The sum that waits at an operand; `none` where there is none.
    Tensor& waiting_at(const Record& operand, Tensor& none) {
        const auto at = sums_.find(&operand);
        return at == sums_.end() ? none : at->second.sum;
    }

    void pull(const std::shared_ptr<const Record>& record, const Tensor& g) {
        if (record->edges.empty()) return;
        std::vector<Tensor> saved = record->saved;
        if (!differentiable_)
            for (Tensor& t : saved) t = t.detached();
        const Saved all{saved, differentiable_ ? record->result.recorded(record) : record->result};
        if (record->together) {
            Tensor none;
            const std::vector<Tensor> found =
                record->together(g, all, waiting_at(*record->edges.front().operand, none));
            for (std::size_t i = 0; i < found.size(); ++i) add(record->edges[i].operand, found[i]);
            if (!found.empty()) return;
        }
        for (const Record::Edge& edge : record->edges)
            add(edge.operand, edge.pullback(g, all), edge.part);
    }

    bool differentiable_;
    std::unordered_map<const Record*, Arrived> sums_;
    std::unordered_map<const Record*, Tensor> found_;
    std::priority_queue<Waiting> queue_;
    Index arrivals_ = 0;
};

}  // namespace

Tensor record(const Tensor& out, std::span<const Dependence> on, std::vector<Tensor> saved,
              bool save_result, Pullbacks together) {
    const auto made = std::make_shared<Record>();
    made->shape = out.shape();
    for (const Dependence& d : on) {
        if (!d.operand.tracked()) continue;
        made->depth = std::max(made->depth, d.operand.record()->depth + 1);
        made->edges.push_back({d.operand.record(), d.pullback, d.part});
    }
    if (made->edges.empty()) return out.detached();
    made->saved = std::move(saved);
    made->together = std::move(together);
    if (save_result) made->result = out.detached();
    return out.recorded(made);
}

Tensor record(const Tensor& out, const Dependence& on, PartsPullback of_parts) {
    if (!on.operand.tracked()) return out.detached();
    const auto made = std::make_shared<Record>();
    made->shape = out.shape();
    made->depth = on.operand.record()->depth + 1;
    made->edges.push_back({on.operand.record(), on.pullback, on.part});
    made->of_parts = std::move(of_parts);
    return out.recorded(made);
}

Tensor variable(const Tensor& x) {
    const auto made = std::make_shared<Record>();
    made->shape = x.shape();
    return x.recorded(made);
}

std::vector<Tensor> grad(const Tensor& y, const Tensor& cotangent, std::span<const Tensor> wrt,
                         bool differentiable) {
    if (y.shape() != cotangent.shape())
        throw ShapeError(fmt::format(
            "grad: the cotangent is ({}, {}, {}), expected the shape of the result, ({}, {}, {})",
            cotangent.batch(), cotangent.rows(), cotangent.cols(), y.batch(), y.rows(), y.cols()));
    Sweep sweep(differentiable);
    for (const Tensor& x : wrt) {
        if (!x.tracked())
            throw ShapeError(
                "grad: a tensor is not tracked; make it a variable() before it is computed with");
        sweep.want(x);
    }
    if (y.tracked()) sweep.add(y.record(), differentiable ? cotangent : cotangent.detached());
    sweep.run();
    std::vector<Tensor> out;
    for (const Tensor& x : wrt) out.push_back(sweep.found(x));
    return out;
}

Tensor with_derivative(const Tensor& value, const Tensor& y) {
    check(value.shape() == y.shape(), "a value and its derivative have one shape");
    if (!y.tracked()) return value;
    return record(value, {{y, [](const Tensor& g, const Saved&) { return g; }}});
}

}  // namespace tsdiag
