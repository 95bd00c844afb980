#include "tsdiag/gradient.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
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

    void add(const std::shared_ptr<const Record>& record, const Tensor& g) {
        check(g.shape() == record->shape, "a derivative has the shape of its operand");
        const auto [at, fresh] = sums_.try_emplace(record.get(), g);
        if (fresh)
            queue_.push({record, arrivals_++});
        else
            at->second = tsdiag::add(at->second, g);
    }

    void run() {
        while (!queue_.empty()) {
            const std::shared_ptr<const Record> record = queue_.top().record;
            queue_.pop();
            const auto at = sums_.find(record.get());
            const Tensor g = std::move(at->second);
            sums_.erase(at);
            if (const auto wanted = found_.find(record.get()); wanted != found_.end())
                wanted->second = g;
            pull(record, g);
        }
    }

    Tensor found(const Tensor& x) const {
        const Tensor& g = found_.at(x.record().get());
        return g.defined() ? g : zeros(x.backend(), x.shape(), x.type());
    }

  private:
    struct Waiting {
        std::shared_ptr<const Record> record;
        Index arrival;  ///< breaks ties, so that the order of sums is fixed
        bool operator<(const Waiting& other) const {
            return record->depth != other.record->depth ? record->depth < other.record->depth
                                                        : arrival > other.arrival;
        }
    };

    void pull(const std::shared_ptr<const Record>& record, const Tensor& g) {
        if (record->edges.empty()) return;
        std::vector<Tensor> saved = record->saved;
        if (!differentiable_)
            for (Tensor& t : saved) t = t.detached();
        const Saved all{saved, differentiable_ ? record->result.recorded(record) : record->result};
        for (const Record::Edge& edge : record->edges) add(edge.operand, edge.pullback(g, all));
    }

    bool differentiable_;
    std::unordered_map<const Record*, Tensor> sums_, found_;
    std::priority_queue<Waiting> queue_;
    Index arrivals_ = 0;
};

}  // namespace

Tensor record(const Tensor& out, std::initializer_list<Dependence> on, std::vector<Tensor> saved,
              bool save_result) {
    const auto made = std::make_shared<Record>();
    made->shape = out.shape();
    for (const Dependence& d : on) {
        if (!d.operand.tracked()) continue;
        made->depth = std::max(made->depth, d.operand.record()->depth + 1);
        made->edges.push_back({d.operand.record(), d.pullback});
    }
    if (made->edges.empty()) return out.detached();
    made->saved = std::move(saved);
    if (save_result) made->result = out.detached();
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
                "grad: a tensor is not tracked; make it a variable() before it is "
                "computed with");
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
