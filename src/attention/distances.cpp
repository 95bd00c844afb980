#include "distances.hpp"

#include <algorithm>
#include <cmath>

#include "score.hpp"

namespace tsdiag::variants {
namespace {

/// (1, rows n, h) -> (h, rows, n).
Tensor by_heads(const Tensor& x, Index rows) {
    return contiguous(transpose(x)).reshape({x.cols(), rows, x.rows() / rows});
}

}  // namespace

Distances::Distances(const AttentionInput& in, const std::function<Index(Index)>& row) {
    for (Index i = 0; i < in.k.rows(); ++i) at_.push_back(std::llround(position(in, i)));
    const Index longest = at_.back() - at_.front();
    for (Index t = -longest; t <= longest; ++t) place_.push_back(row(t));
    rows_ = place_;
    std::ranges::sort(rows_);
    rows_.erase(std::ranges::unique(rows_).begin(), rows_.end());
    for (Index& p : place_) p = std::ranges::lower_bound(rows_, p) - rows_.begin();
}

Index Distances::place(Index i, Index j) const {
    const Index longest = at_.back() - at_.front();
    return place_[std::size_t(at_[std::size_t(i)] - at_[std::size_t(j)] + longest)];
}

Tensor Distances::of_table(const Tensor& t, Index first, Index count) const {
    std::vector<Index> all;
    all.reserve(std::size_t(count * std::ssize(at_)));
    for (Index i = first; i < first + count; ++i)
        for (Index j = 0; j < std::ssize(at_); ++j) all.push_back(place(i, j));
    return by_heads(gather_rows(t, all), count);
}

Tensor Distances::of_queries(const Tensor& x, Index first, Index count) const {
    std::vector<Index> all;
    all.reserve(std::size_t(count * std::ssize(at_)));
    for (Index i = 0; i < count; ++i)
        for (Index j = 0; j < std::ssize(at_); ++j)
            all.push_back(i * std::ssize(rows_) + place(first + i, j));
    return by_heads(gather_rows(by_columns(x), all), count);
}

Tensor Distances::of_keys(const Tensor& y, Index first, Index count) const {
    std::vector<Index> all;
    all.reserve(std::size_t(count * std::ssize(at_)));
    for (Index i = first; i < first + count; ++i)
        for (Index j = 0; j < std::ssize(at_); ++j)
            all.push_back(j * std::ssize(rows_) + place(i, j));
    return by_heads(gather_rows(y, all), count);
}

Tensor Distances::by_columns(const Tensor& x) {
    return contiguous(transpose(contiguous(x).reshape({1, x.batch(), x.rows() * x.cols()})));
}

}  // namespace tsdiag::variants
