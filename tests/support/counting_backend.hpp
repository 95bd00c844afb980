#pragma once
#include <atomic>

#include "tsdiag/backend.hpp"

namespace tsdiag::test {

/// The CPU, counting the FLOPs of its products of matrices.
class CountingBackend final : public Backend {
  public:
    double flops() const { return 2 * double(multiplied_); }

    void matmul(View out, View a, View b, Transpose t, double alpha) const override {
        const Index inner = t == Transpose::first ? a.shape.rows : a.shape.cols;
        multiplied_ += out.shape.count() * inner;
        cpu_.matmul(out, a, b, t, alpha);
    }

    std::string_view name() const override { return cpu_.name(); }
    std::string description() const override { return cpu_.description(); }
    bool host_memory() const override { return cpu_.host_memory(); }
    std::size_t memory() const override { return cpu_.memory(); }
    std::size_t available() const override { return cpu_.available(); }
    double working_set() const override { return cpu_.working_set(); }
    void synchronise() const override { cpu_.synchronise(); }
    std::shared_ptr<void> allocate(std::size_t bytes) const override {
        return cpu_.allocate(bytes);
    }
    void upload(View out, const void* host) const override { cpu_.upload(out, host); }
    void download(void* host, View in) const override { cpu_.download(host, in); }
    void matvec(View y, View a, View x, bool transposed) const override {
        cpu_.matvec(y, a, x, transposed);
    }
    void fill(View out, double value) const override { cpu_.fill(out, value); }
    void unary(Unary op, View out, View a) const override { cpu_.unary(op, out, a); }
    void map_sum(View out, View a, const View* bias, Unary op, const View* added,
                 const View* kept) const override {
        cpu_.map_sum(out, a, bias, op, added, kept);
    }
    void copy(std::span<const View> to, std::span<const View> from) const override {
        cpu_.copy(to, from);
    }
    void convert(View out, View a) const override { cpu_.convert(out, a); }
    void transpose(View out, View a) const override { cpu_.transpose(out, a); }
    void split_heads(View out, View a, const View* bias,
                     std::span<const Index> parts) const override {
        cpu_.split_heads(out, a, bias, parts);
    }
    void merge_heads(View out, std::span<const View> parts) const override {
        cpu_.merge_heads(out, parts);
    }
    void expand(View out, View a) const override { cpu_.expand(out, a); }
    void binary(Binary op, View out, View a, View b) const override { cpu_.binary(op, out, a, b); }
    void affine(View out, View a, double alpha, double beta) const override {
        cpu_.affine(out, a, alpha, beta);
    }
    void normalise_rows(View out, View a, const View* weight, const View* bias, double eps,
                        bool centre) const override {
        cpu_.normalise_rows(out, a, weight, bias, eps, centre);
    }
    void row_sum(View out, View a) const override { cpu_.row_sum(out, a); }
    void column_sum(View out, View a) const override { cpu_.column_sum(out, a); }
    void row_max(View out, View a) const override { cpu_.row_max(out, a); }
    void gather_rows(View out, View table, std::span<const Index> rows) const override {
        cpu_.gather_rows(out, table, rows);
    }
    void scatter_add_rows(View out, View a, std::span<const Index> rows) const override {
        cpu_.scatter_add_rows(out, a, rows);
    }
    void rotate(View out, View a, std::span<const double> position,
                std::span<const double> frequency, bool interleaved) const override {
        cpu_.rotate(out, a, position, frequency, interleaved);
    }
    void draw(View out, Law law, std::uint64_t seed, std::uint64_t stream, double offset,
              double scale) const override {
        cpu_.draw(out, law, seed, stream, offset, scale);
    }
    void adamw(std::span<const AdamWUpdate> updates) const override { cpu_.adamw(updates); }
    void softmax_rows(View p, const Visible& visible) const override {
        cpu_.softmax_rows(p, visible);
    }
    void hide(View p, const Visible& visible) const override { cpu_.hide(p, visible); }
    bool fuses() const override { return cpu_.fuses(); }
    void sum_rows(View sum, const View* branch, const View* normed, View a, const View* bias,
                  View added, const View* weight, const View* shift, double eps,
                  bool centre) const override {
        cpu_.sum_rows(sum, branch, normed, a, bias, added, weight, shift, eps, centre);
    }
    void unary_derivative(Unary op, View out, View g, View x, View y) const override {
        cpu_.unary_derivative(op, out, g, x, y);
    }
    void softmax_derivative(View out, View g, View y) const override {
        cpu_.softmax_derivative(out, g, y);
    }
    void norm_derivative(View out, const View* parts, View g, View x, const View* weight,
                         const View* added, double eps, bool centre) const override {
        cpu_.norm_derivative(out, parts, g, x, weight, added, eps, centre);
    }
    void krylov_products(const View* y, const View* z, View a, View x, View u,
                         View column) const override {
        cpu_.krylov_products(y, z, a, x, u, column);
    }
    void extend_basis(View basis, View column, View image, Index centred) const override {
        cpu_.extend_basis(basis, column, image, centred);
    }
    Later<RowStatistics> row_statistics(View p, const View* slope, bool divided, Index first,
                                        const Visible& visible) const override {
        return cpu_.row_statistics(p, slope, divided, first, visible);
    }
    Later<RowStatistics> row_totals(View p, const View* slope, bool divided, Index first,
                                    const Visible& visible) const override {
        return cpu_.row_totals(p, slope, divided, first, visible);
    }
    Later<std::vector<StateMoments>> state_moments(std::span<const View> xs) const override {
        return cpu_.state_moments(xs);
    }
    Later<std::vector<double>> squared_norms(std::span<const View> xs) const override {
        return cpu_.squared_norms(xs);
    }
    Later<std::vector<double>> squares_and_traces(View a) const override {
        return cpu_.squares_and_traces(a);
    }
    Later<std::vector<Index>> first_nonfinite(std::span<const View> xs) const override {
        return cpu_.first_nonfinite(xs);
    }
    Later<std::vector<Survey>> survey(View a) const override { return cpu_.survey(a); }
    Later<std::vector<double>> row_distances(View a) const override {
        return cpu_.row_distances(a);
    }
    Later<std::vector<double>> numbers_of(View a) const override { return cpu_.numbers_of(a); }
    Later<std::vector<double>> tridiagonals(View a) const override { return cpu_.tridiagonals(a); }
    std::optional<std::size_t> dense_workspace(Index n) const override {
        return cpu_.dense_workspace(n);
    }
    std::optional<std::vector<std::complex<double>>> eigenvalues(View a) const override {
        return cpu_.eigenvalues(a);
    }
    Sensitivity sensitivity(View a, std::complex<double> theta) const override {
        return cpu_.sensitivity(a, theta);
    }
    std::optional<std::vector<double>> symmetric_eigenvalues(View a) const override {
        return cpu_.symmetric_eigenvalues(a);
    }

  private:
    const Backend& cpu_ = cpu();
    mutable std::atomic<Index> multiplied_ = 0;
};

}  // namespace tsdiag::test
