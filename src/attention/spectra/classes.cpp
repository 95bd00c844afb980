#include "classes.hpp"

#include <algorithm>
#include <numeric>

#include "one_matrix.hpp"
#include "route.hpp"

namespace tsdiag::classes {
namespace {

template <class Use>
void with_rows(const View& p, Use&& use) {
    for (Index i = 0; i < p.shape.rows; ++i) {
        if (p.type == Type::f32)
            use(i, p.row<float>(0, i));
        else
            use(i, p.row<double>(0, i));
    }
}

/// Tarjan's strongly connected components, without recursion.
class Search {
  public:
    explicit Search(const Graph& graph)
        : graph_(graph),
          order_(std::size_t(graph.size()), -1),
          low_(std::size_t(graph.size()), 0),
          next_(std::size_t(graph.size()), 0),
          open_(std::size_t(graph.size()), 0) {}

    std::vector<Class> run() {
        for (Index root = 0; root < graph_.size(); ++root) {
            if (order_[std::size_t(root)] >= 0) continue;
            enter(root);
            while (!path_.empty()) step();
        }
        return std::move(found_);
    }

  private:
    void enter(Index v) {
        order_[std::size_t(v)] = low_[std::size_t(v)] = count_++;
        open_[std::size_t(v)] = 1;
        stack_.push_back(v);
        path_.push_back(v);
    }

    void step() {
        const Index v = path_.back();
        Index& low = low_[std::size_t(v)];
        for (Index& w = next_[std::size_t(v)]; w < graph_.size(); ++w) {
            if (!graph_.edge(v, w)) continue;
            if (order_[std::size_t(w)] < 0) {
                enter(w);
                return;
            }
            if (open_[std::size_t(w)]) low = std::min(low, low_[std::size_t(w)]);
        }
        path_.pop_back();
        if (!path_.empty()) {
            Index& parent = low_[std::size_t(path_.back())];
            parent = std::min(parent, low);
        }
        if (low == order_[std::size_t(v)]) close(v);
    }

    void close(Index v) {
        Class c;
        Index w = -1;
        do {
            w = stack_.back();
            stack_.pop_back();
            open_[std::size_t(w)] = 0;
            c.tokens.push_back(w);
        } while (w != v);
        std::sort(c.tokens.begin(), c.tokens.end());
        found_.push_back(std::move(c));
    }

    const Graph& graph_;
    std::vector<Index> order_, low_, next_;
    std::vector<char> open_;
    std::vector<Index> stack_, path_;
    std::vector<Class> found_;
    Index count_ = 0;
};

}  // namespace

Graph::Graph(const View& p) : n_(p.shape.rows), edge_(std::size_t(n_ * n_)) {
    with_rows(p, [this](Index i, auto* row) {
        for (Index j = 0; j < n_; ++j) edge_[std::size_t(i * n_ + j)] = row[j] != 0;
    });
}

bool has_zero(const View& p) {
    bool found = false;
    with_rows(p, [&](Index, auto* row) {
        found = found || std::find(row, row + p.shape.cols, 0) != row + p.shape.cols;
    });
    return found;
}

std::vector<Class> communicating(const Graph& graph) {
    std::vector<Class> found = Search(graph).run();
    std::vector<std::size_t> of(std::size_t(graph.size()));
    for (std::size_t c = 0; c < found.size(); ++c)
        for (Index i : found[c].tokens) of[std::size_t(i)] = c;
    for (Class& c : found)
        for (Index i : c.tokens)
            for (Index j = 0; j < graph.size() && c.closed; ++j)
                c.closed = !graph.edge(i, j) || of[std::size_t(j)] == of[std::size_t(i)];
    return found;
}

Index period(const Graph& graph) {
    // Distances from token 0; an edge i -> j closes a cycle of length distance(i) + 1 - distance(j)
    // mod d.
    const Index n = graph.size();
    std::vector<Index> distance(std::size_t(n), -1), queue = {0};
    distance[0] = 0;
    Index divisor = 0;
    for (std::size_t head = 0; head < queue.size(); ++head) {
        const Index i = queue[head];
        for (Index j = 0; j < n; ++j) {
            if (!graph.edge(i, j)) continue;
            if (distance[std::size_t(j)] < 0) {
                distance[std::size_t(j)] = distance[std::size_t(i)] + 1;
                queue.push_back(j);
            }
            divisor = std::gcd(divisor, distance[std::size_t(i)] + 1 - distance[std::size_t(j)]);
            if (divisor == 1) return 1;
        }
    }
    return divisor;
}

}  // namespace tsdiag::classes

namespace tsdiag::spectra {
namespace {

bool applies(const Problem& problem) {
    return problem.kept && !problem.for_norm() && !problem.known.causal;
}

Found find(const Problem& problem, std::span<const Index> heads) {
    const auto of = [&](const View& p) {
        return one_matrix::by_classes(p, problem.known.row_stochastic,
                                      {problem.accuracy, problem.asked});
    };
    if (!problem.on_device() || problem.for_host()) return each_kept(problem, heads, of);
    Found out(heads.size());
    for (std::size_t i = 0; i < heads.size(); ++i)
        if (problem.survey()[std::size_t(heads[i])].has_zero)
            out[i] = copied(problem, heads[i], of);
    return out;
}

}  // namespace

extern const Route classes = {
    .about = {.name = "classes",
              .applies =
                  "P in memory whose exact zeros form several communicating classes, or a period",
              .certifies = "the spectrum is the union of those of the classes; a periodic "
                           "stochastic P has -1 or another root of 1",
              .cost = "n^2, plus the cost of the classes"},
    .applies = applies,
    .find = find};

}  // namespace tsdiag::spectra
