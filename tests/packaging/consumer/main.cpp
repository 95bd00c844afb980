#include <iostream>
#include <tsdiag/ops.hpp>
#include <vector>

int main() {
    const std::vector<double> x = {3, 4, 3, 4};  // two equal rows: all of X is in its mean
    const tsdiag::Tensor t =
        tsdiag::Tensor::from_host(tsdiag::cpu(), {1, 2, 2}, x, tsdiag::Type::f64);
    const tsdiag::StateMoments m = tsdiag::state_moments(t);
    std::cout << "t_sim = " << m.mean_part / m.squared << "\n";
    return m.mean_part == m.squared && m.centred == 0 ? 0 : 1;
}
