#include "search.hpp"

#include <algorithm>
#include <cmath>

namespace tsdiag::claim {
namespace {

using Point = std::vector<double>;

class Simplex {
  public:
    Simplex(const std::function<double(const Point&)>& f, Index evaluations)
        : f_(f), left_(evaluations) {}

    /// One run from `start`, with edges of a `size` part of each coordinate.
    Best run(const Point& start, double size) {
        const std::size_t k = start.size();
        vertices_.assign(1, {start, value(start)});
        for (std::size_t i = 0; i < k; ++i) {
            Point x = start;
            x[i] += size * std::max(std::abs(x[i]), 0.1);
            vertices_.push_back({x, value(x)});
        }
        const double dimension = double(k);
        expand_ = 1 + 2 / dimension;
        contract_ = 0.75 - 1 / (2 * dimension);
        shrink_ = k > 1 ? 1 - 1 / dimension : 0.5;
        while (left_ > 0 && !flat()) step();
        sort();
        return vertices_.front();
    }
    Index left() const { return left_; }

  private:
    double value(const Point& x) {
        --left_;
        const double v = f_(x);
        return std::isnan(v) ? -INFINITY : v;
    }
    void sort() { std::sort(vertices_.begin(), vertices_.end(), better); }
    bool flat() {
        sort();
        const double top = vertices_.front().value, bottom = vertices_.back().value;
        return top == bottom || top - bottom <= 1e-14 * std::abs(top);
    }
    /// centre + t (centre - worst)
    Best move(const Point& centre, double t) {
        Point x = centre;
        for (std::size_t i = 0; i < x.size(); ++i) x[i] += t * (centre[i] - vertices_.back().x[i]);
        const double v = value(x);
        return {std::move(x), v};
    }
    void step() {
        const std::size_t k = vertices_.front().x.size();
        Point centre(k, 0);
        for (std::size_t v = 0; v < k; ++v)
            for (std::size_t i = 0; i < k; ++i) centre[i] += vertices_[v].x[i] / double(k);
        const Best reflected = move(centre, 1);
        Best& worst = vertices_.back();
        if (reflected.value > vertices_.front().value) {
            const Best expanded = move(centre, expand_);
            worst = expanded.value > reflected.value ? expanded : reflected;
            return;
        }
        if (reflected.value > vertices_[k - 1].value) {
            worst = reflected;
            return;
        }
        const bool outside = reflected.value > worst.value;
        const Best contracted = move(centre, outside ? contract_ : -contract_);
        if (contracted.value > std::max(reflected.value, worst.value)) {
            worst = contracted;
            return;
        }
        const Point top = vertices_.front().x;
        for (std::size_t v = 1; v < vertices_.size(); ++v) {
            for (std::size_t i = 0; i < k; ++i)
                vertices_[v].x[i] = top[i] + shrink_ * (vertices_[v].x[i] - top[i]);
            vertices_[v].value = value(vertices_[v].x);
        }
    }

    const std::function<double(const Point&)>& f_;
    Index left_;
    std::vector<Best> vertices_;
    double expand_ = 2, contract_ = 0.5, shrink_ = 0.5;
};

}  // namespace

Best climb(const std::function<double(const std::vector<double>&)>& f, std::vector<double> start,
           Index evaluations) {
    Simplex simplex(f, evaluations);
    Best best{start, -INFINITY};
    if (start.empty()) return {start, f(start), 1};
    double size = 0.5;
    while (simplex.left() > 0) {
        Best next = simplex.run(best.x, size);
        const double gain = next.value - best.value;
        if (next.value > best.value) best = std::move(next);
        if (!(gain > 1e-12 * std::abs(best.value))) {
            if (size < 0.05) break;
            size /= 4;
        }
    }
    best.steps = evaluations - simplex.left();
    return best;
}

}  // namespace tsdiag::claim
