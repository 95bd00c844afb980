#include "squaring.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <span>

#include "centred.hpp"
#include "on_device.hpp"
#include "route.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::squaring {
namespace {

constexpr Index most_squarings = 44;
constexpr double ulp = std::numeric_limits<double>::epsilon();
constexpr double vanishing = 1e-8;  // of a trace relative to the norm: no lower bound of the radius

/// Bounds of the radius from the norms and traces of A, A^2, A^4, ...
class Bracket {
  public:
    Bracket(Index n, double accuracy, double error)
        : n_(double(n)), accuracy_(accuracy), error_(error) {}

    bool done() const { return done_; }

    /// Of A^(2^s), scaled by the powers of two returned before; returns the next one, which brings
    /// the norm to [1/2, 1).
    double add(double squares, double trace) {
        if (!norms_.empty()) scale_ *= 2;
        if (squares == 0) {
            // The power vanished: A is 0, or nilpotent to rounding, which bounds no error of an
            // eigenvalue.
            if (norms_.empty()) upper_ = error_, lower_ = 0, rounding_ = error_ > 0 ? error_ : 0;
            done_ = true;
            return 1;
        }
        int exponent = 0;
        const double norm = std::frexp(std::sqrt(squares), &exponent);
        trace = std::ldexp(std::abs(trace), -exponent);
        scale_ += exponent * std::numbers::ln2;
        const double power = std::ldexp(1.0, int(norms_.size()));
        norms_.push_back(scale_ + std::log(norm));
        upper_ = std::min(upper_, std::exp(norms_.back() / power));
        if (trace > vanishing * norm) {
            lower_ = std::max(lower_, std::exp((scale_ + std::log(trace / (n_ - 1))) / power));
            rounding_ = norm / trace * (rounding() + 2 * error_ / (lower_ + upper_));
        }
        done_ = certain();
        return std::ldexp(1.0, -exponent);
    }

    Estimate estimate() const {
        Estimate out;
        out.value = (lower_ + upper_) / 2;
        out.method = "squaring";
        out.residual = std::max(0.0, upper_ - lower_);
        out.iterations = norms_.empty() ? 0 : Index(norms_.size()) - 1;
        out.converged = certain();
        if (!out.converged) out.low = lower_, out.high = upper_;
        return out;
    }

  private:
    bool certain() const {
        return upper_ - lower_ <= accuracy_ / 1000 * upper_ && rounding_ <= accuracy_ / 10;
    }
    /// 2^-53 sqrt(n) max_j 2^-(j+1) (|A^(2^j)|_F / rho^(2^j))^2, of the powers before the last.
    double rounding() const {
        const double radius = std::log((lower_ + upper_) / 2);
        double most = -1e3;
        for (std::size_t j = 0; j + 1 < norms_.size(); ++j) {
            const double power = std::ldexp(1.0, int(j));
            most = std::max(most,
                            2 * (norms_[j] - power * radius) - double(j + 1) * std::numbers::ln2);
        }
        return ulp / 2 * std::sqrt(n_) * std::exp(std::min(700.0, most));
    }

    double n_, accuracy_, error_;
    double scale_ = 0;           ///< log of what A^(2^s) was divided by
    std::vector<double> norms_;  ///< log |A^(2^j)|_F
    double lower_ = 0, upper_ = std::numeric_limits<double>::infinity();
    double rounding_ = std::numeric_limits<double>::infinity();
    bool done_ = false;
};

}  // namespace

std::vector<Estimate> spectral_radii(Tensor a, double accuracy, std::span<const double> errors) {
    check(a.rows() == a.cols() && a.rows() >= 2 && a.type() == Type::f64,
          "repeated squaring: square matrices in float64");
    std::vector<Bracket> brackets;
    for (Index k = 0; k < a.batch(); ++k)
        brackets.emplace_back(a.rows(), accuracy, errors.empty() ? 0 : errors[std::size_t(k)]);
    for (Index s = 0; s <= most_squarings; ++s) {
        if (s > 0) a = matmul(a, a);
        auto found = a.backend().squares_and_traces(a.view());
        const std::vector<double>& numbers = found.get();
        std::vector<double> factors;
        for (std::size_t k = 0; k < brackets.size(); ++k) {
            Bracket& bracket = brackets[k];
            factors.push_back(bracket.done() ? 0 : bracket.add(numbers[2 * k], numbers[2 * k + 1]));
        }
        if (std::ranges::all_of(brackets, &Bracket::done)) break;
        a = centred::times(a, factors);
    }
    std::vector<Estimate> out;
    for (const Bracket& bracket : brackets) out.push_back(bracket.estimate());
    return out;
}

bool applies(const spectra::Problem& problem) {
    return problem.asked == "auto" && problem.on_device() && problem.kept && !problem.for_host() &&
           problem.p.columns() <= largest && (problem.for_norm() || problem.known.row_stochastic);
}

std::vector<Estimate> second_eigenvalue(const Tensor& p, double accuracy,
                                        std::span<const double> errors) {
    return spectral_radii(centred::both(p), accuracy, errors);
}

std::vector<Estimate> centred_norm(const Tensor& p, double accuracy,
                                   std::span<const double> errors) {
    const Tensor a = centred::columns(p);
    std::vector<Estimate> found = spectral_radii(matmul(a, a, Transpose::first), accuracy);
    for (std::size_t k = 0; k < found.size(); ++k) {
        Estimate& e = found[k];
        e.value = std::sqrt(e.value);
        if (e.value > 0) e.residual /= 2 * e.value;
        if (e.low) e.low = std::sqrt(*e.low);
        if (e.high) e.high = std::sqrt(*e.high);
        if (errors.empty() || (e.converged && errors[k] <= accuracy / 10 * e.value)) continue;
        e.converged = false;  // Weyl's theorem
        e.low = std::max(0.0, e.low.value_or(e.value * (1 - accuracy)) - errors[k]);
        e.high = e.high.value_or(e.value * (1 + accuracy)) + errors[k];
    }
    return found;
}

}  // namespace tsdiag::squaring

namespace tsdiag::spectra {
namespace {

/// of(p, errors), for as many heads at once as fit into memory.
template <class Of>
std::vector<Estimate> in_groups(const Tensor& p, std::span<const double> errors, const Of& of) {
    try {
        return of(p, errors);
    } catch (const OutOfMemory&) {
        if (p.batch() == 1) throw;
    }
    note_shortage("the heads of a spectrum were processed in halves");
    const Index half = p.batch() / 2;
    std::vector<Estimate> out =
        in_groups(p.batch_range(0, half), errors.first(std::size_t(half)), of);
    std::ranges::move(
        in_groups(p.batch_range(half, p.batch() - half), errors.subspan(std::size_t(half)), of),
        std::back_inserter(out));
    return out;
}

Found find(const Problem& problem, std::span<const Index> heads) {
    std::vector<double> errors;
    for (const Index k : heads)
        errors.push_back(on_device::rounding_of_means(problem.p.tokens(), problem.p.columns(),
                                                      problem.survey()[std::size_t(k)].squares));
    const std::vector<Estimate> found = in_groups(
        chosen(problem.p.matrix(), heads), errors,
        [&](const Tensor& p, std::span<const double> error) {
            return problem.for_norm() ? squaring::centred_norm(p, problem.accuracy, error)
                                      : squaring::second_eigenvalue(p, problem.accuracy, error);
        });
    return {found.begin(), found.end()};
}

}  // namespace

extern const Route squaring = {
    .about = {.name = "squaring",
              .applies =
                  "stochastic P on a device, of at most 1024 tokens; delta of any P of that size",
              .certifies =
                  "Gelfand's bracket of norms and traces, with its rounding to first order",
              .cost = "64 n^3, all in batched products"},
    .applies = tsdiag::squaring::applies,
    .find = find};

}  // namespace tsdiag::spectra
