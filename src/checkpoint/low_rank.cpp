#include "low_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "packed.hpp"

namespace tsdiag::checkpoint {
namespace {

std::vector<RawTensor> all_parts(const LowRank& from) {
    std::vector<RawTensor> parts{from.weight, from.a, from.b};
    if (from.magnitude) parts.push_back(*from.magnitude);
    return parts;
}

RawTensor transposed_view(RawTensor matrix) {
    std::swap(matrix.shape[0], matrix.shape[1]);
    std::swap(matrix.strides[0], matrix.strides[1]);
    return matrix;
}

/// Rows and columns of a matrix, widened.
std::vector<double> block_of(RawTensor matrix, std::int64_t row, std::int64_t rows,
                             std::int64_t column, std::int64_t columns) {
    matrix.offset += row * matrix.strides[0] + column * matrix.strides[1];
    matrix.shape = {rows, columns};
    std::vector<double> values(std::size_t(rows * columns));
    widen(matrix, std::span(values));
    return values;
}

class LowRankSum final : public PackedMatrix {
  public:
    explicit LowRankSum(LowRank from)
        : PackedMatrix(from.weight.shape[1], all_parts(from), 0),
          from_(std::move(from)),
          left_(from_.turned ? transposed_view(from_.a) : from_.b),
          right_(from_.turned ? transposed_view(from_.b) : from_.a) {}

    void decode(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                float* out) const override {
        fill(row, rows, column, columns, out);
    }
    void decode_double(std::int64_t row, std::int64_t rows, std::int64_t column,
                       std::int64_t columns, double* out) const override {
        fill(row, rows, column, columns, out);
    }

  private:
    /// W + scale B A as it is stored: calls `take(row, values)` for each row.
    template <class Take>
    void each_row(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
                  Take take) const {
        const std::int64_t rank = from_.a.shape[0];
        const std::vector<double> left = block_of(left_, row, rows, 0, rank),
                                  right = block_of(right_, 0, rank, column, columns);
        std::vector<double> sum(std::size_t(columns), 0.0);
        for (std::int64_t i = 0; i < rows; ++i) {
            std::ranges::fill(sum, 0.0);
            for (std::int64_t k = 0; k < rank; ++k) {
                const double factor = left[std::size_t(i * rank + k)];
                const double* of_k = right.data() + k * columns;
                for (std::int64_t j = 0; j < columns; ++j) sum[std::size_t(j)] += factor * of_k[j];
            }
            std::vector<double> values = block_of(from_.weight, row + i, 1, column, columns);
            for (std::size_t j = 0; j < sum.size(); ++j) values[j] += from_.scale * sum[j];
            take(row + i, values);
        }
    }

    template <class T>
    void fill(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
              T* out) const {
        if (from_.magnitude) std::call_once(normed_, [&] { find_factors(); });
        each_row(row, rows, column, columns, [&](std::int64_t at, std::span<const double> values) {
            for (std::size_t j = 0; j < values.size(); ++j) {
                const std::size_t output = from_.turned ? std::size_t(column) + j : std::size_t(at);
                *out++ = T(factors_.empty() ? values[j] : factors_[output] * values[j]);
            }
        });
    }

    void find_factors() const {
        constexpr std::int64_t chunk = 64;  // rows at a time
        const std::int64_t rows = from_.weight.shape[0], columns = from_.weight.shape[1];
        std::vector<double> norms(std::size_t(from_.magnitude->shape[0]), 0.0);
        for (std::int64_t first = 0; first < rows; first += chunk)
            each_row(first, std::min(chunk, rows - first), 0, columns,
                     [&](std::int64_t at, std::span<const double> values) {
                         for (std::size_t j = 0; j < values.size(); ++j)
                             norms[from_.turned ? j : std::size_t(at)] += values[j] * values[j];
                     });
        factors_.resize(norms.size());
        widen(*from_.magnitude, std::span(factors_));
        for (std::size_t o = 0; o < norms.size(); ++o) factors_[o] /= std::sqrt(norms[o]);
    }

    LowRank from_;
    RawTensor left_, right_;  ///< of the stored matrix: (rows, rank) and (rank, columns)
    mutable std::once_flag normed_;
    mutable std::vector<double> factors_;  ///< of the outputs; empty: there are none
};

}  // namespace

RawTensor low_rank_sum(LowRank parts) {
    const std::vector<std::int64_t> shape = parts.weight.shape;
    std::string name = fmt::format("{} + LoRA", parts.weight.dtype_name);
    return packed_tensor(std::make_shared<LowRankSum>(std::move(parts)), shape, std::move(name));
}

}  // namespace tsdiag::checkpoint
