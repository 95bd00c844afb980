#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "of_samples.hpp"
#include "one_matrix.hpp"
#include "rescaled.hpp"
#include "route.hpp"
#include "tsdiag/error.hpp"

/// The list of routes, in the order tried.
// clang-format off
#define TSDIAG_SPECTRAL_ROUTES(X) \
    X(diagonal)                   \
    X(blocks)                     \
    X(factors)                    \
    X(classes)                    \
    X(krylov)                     \
    X(squaring)                   \
    X(arnoldi)                    \
    X(dense)                      \
    X(library)
// clang-format on

namespace tsdiag {
namespace spectra {

#define TSDIAG_DECLARE(name) extern const Route name;
TSDIAG_SPECTRAL_ROUTES(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE

namespace {

std::span<const Route* const> routes() {
#define TSDIAG_ADDRESS(name) &spectra::name,
    static constexpr std::array all{TSDIAG_SPECTRAL_ROUTES(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return all;
}

/// Values of a small P that passed a test, by a proof: certain only where that agrees.
void confirm(const Problem& problem, std::span<const Index> heads, Found& found) {
    if (problem.on_device() || !problem.kept || problem.p.columns() > one_matrix::dense_below)
        return;
    const stored::Heads all(problem.p.matrix());
    for (std::size_t i = 0; i < heads.size(); ++i) {
        if (!found[i]) continue;
        const View p = all[heads[i]];
        const Estimate proven =
            problem.for_norm()
                ? one_matrix::dense_norm(p, problem.accuracy)
                : one_matrix::by_dense(p, one_matrix::second_of(problem.known), problem.accuracy);
        found[i] = one_matrix::confirmed(*found[i], proven,
                                         problem.accuracy / (problem.for_norm() ? 10 : 1));
    }
}

std::vector<Estimate> try_all(const Problem& problem) {
    std::vector<Index> open(std::size_t(problem.p.heads()));
    std::iota(open.begin(), open.end(), 0);
    Found found(open.size());
    for (const Route* route : routes()) {
        if (open.empty()) break;
        if (!route->applies(problem)) continue;
        Found some = route->find(problem, open);
        if (route->tests) confirm(problem, open, some);
        for (std::size_t i = 0; i < open.size(); ++i)
            if (some[i]) found[std::size_t(open[i])] = some[i];
        std::erase_if(open, [&](Index k) {
            return found[std::size_t(k)] && found[std::size_t(k)]->converged;
        });
    }
    std::vector<Estimate> out;
    for (const std::optional<Estimate>& head : found) {
        if (!head)
            throw UsageError(fmt::format(
                "--spectra {}: P of {} tokens takes {:.0f} MB, expected P to fit into memory with "
                "its workspace and to have at least {} tokens; raise --memory, or choose another "
                "route.",
                problem.asked, problem.p.tokens(), problem.p.bytes() / 1e6, least_restarted));
        out.push_back(*head);
    }
    return out;
}

/// A kept P may exceed the free memory of its device: then it is streamed.
std::vector<Estimate> solve_here(Problem problem) {
    const AttentionOperator& p = problem.p;
    try {
        return try_all(problem);
    } catch (const OutOfMemory&) {
        if (!problem.on_device() || !problem.kept) throw;
    }
    note_shortage("P of a spectrum was computed by blocks");
    problem.kept = false;
    problem.memory = p.bytes() / 2;
    return try_all(problem);
}

Problem problem_of(const AttentionOperator& p, Sought sought, double memory, double accuracy,
                   std::string_view asked) {
    return {.p = p,
            .known = p.structure(),
            .sought = sought,
            .memory = memory,
            .accuracy = accuracy,
            .asked = asked,
            .kept = stored::fits(p, memory)};
}

std::vector<Estimate> solve(const AttentionOperator& p, Sought sought, double memory,
                            double accuracy, std::string_view asked) {
    if (const auto* sample = dynamic_cast<const HeadsOfSample*>(&p)) {
        SharedAttention& shared = sample->shared();
        const SharedAttention::Question question{int(sought), memory, accuracy, std::string(asked)};
        if (!shared.answers.contains(question))
            shared.answers[question] =
                solve(*shared.all, sought, memory * double(shared.samples), accuracy, asked);
        return sample->own(shared.answers.at(question));
    }
    if (const auto near = Rescaled::where_needed(p, memory))
        return near->restore(solve(*near, sought, memory, accuracy, asked));
    return solve_here(problem_of(p, sought, memory, accuracy, asked));
}

Spectra solve_both(const AttentionOperator& p, double memory, double accuracy,
                   std::string_view asked) {
    if (const auto* sample = dynamic_cast<const HeadsOfSample*>(&p)) {
        SharedAttention& shared = sample->shared();
        const auto question = [&](Sought sought) {
            return SharedAttention::Question{int(sought), memory, accuracy, std::string(asked)};
        };
        const SharedAttention::Question second = question(Sought::second_eigenvalue),
                                        norm = question(Sought::centred_norm);
        if (!shared.answers.contains(second) || !shared.answers.contains(norm)) {
            Spectra found =
                solve_both(*shared.all, memory * double(shared.samples), accuracy, asked);
            shared.answers[second] = std::move(found.second);
            shared.answers[norm] = std::move(found.norm);
        }
        return {sample->own(shared.answers.at(second)), sample->own(shared.answers.at(norm))};
    }
    if (const auto near = Rescaled::where_needed(p, memory)) {
        Spectra found = solve_both(*near, memory, accuracy, asked);
        return {near->restore(std::move(found.second)), near->restore(std::move(found.norm))};
    }
    std::vector<std::optional<Estimate>> norms(std::size_t(p.heads()));
    const auto facts = std::make_shared<Facts>();
    const auto of = [&](Sought sought) {
        Problem problem = problem_of(p, sought, memory, accuracy, asked);
        problem.beside = &norms;
        problem.facts = facts;
        return solve_here(std::move(problem));
    };
    std::vector<Estimate> second = of(Sought::second_eigenvalue);
    return {std::move(second), of(Sought::centred_norm)};
}

}  // namespace
}  // namespace spectra

std::vector<SpectralRoute> spectral_routes() {
    std::vector<SpectralRoute> out;
    for (const spectra::Route* route : spectra::routes()) out.push_back(route->about);
    return out;
}

SecondOpinion second_opinion(const AttentionOperator& p, Index head, const Estimate& found,
                             double memory) {
    check(p.memory() == 0, "eigenvalues are those of a square P");
    const Structure known = p.structure();
    if (!found.converged) return {{}, "lambda2_abs is not certified"};
    if (known.causal) return {{}, "P is causal, so its eigenvalues are its diagonal"};
    if (p.tokens() < least_restarted)
        return {{}, fmt::format("fewer than {} tokens", least_restarted)};
    if (!stored::fits(p, memory)) return {{}, "P does not fit into memory"};
    const auto near = Rescaled::where_needed(p, memory);
    const Tensor& whole = near ? near->matrix() : p.matrix();
    std::vector<Estimate> other(std::size_t(p.heads()));
    Estimate& one = other[std::size_t(head)];
    one = one_matrix::by_library(stored::Heads(whole.batch_range(head, 1))[0],
                                 one_matrix::second_of(known), usual_accuracy);
    if (!one.converged) return {{}, "Spectra did not converge"};
    if (near) other = near->restore(std::move(other));
    const double value = other[std::size_t(head)].value, larger = std::max(value, found.value);
    return {larger > 0 ? std::abs(value - found.value) / larger : 0};
}

std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory, double accuracy,
                                        std::string_view route) {
    check(p.tokens() >= 2, "a second eigenvalue needs two tokens");
    check(p.memory() == 0, "eigenvalues are those of a square P");
    return spectra::solve(p, spectra::Sought::second_eigenvalue, memory, accuracy, route);
}

Spectra second_eigenvalue_and_norm(const AttentionOperator& p, double memory, double accuracy,
                                   std::string_view route) {
    check(p.tokens() >= 2, "a second eigenvalue needs two tokens");
    check(p.memory() == 0, "eigenvalues are those of a square P");
    return spectra::solve_both(p, memory, accuracy, route);
}

std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory, double accuracy,
                                   std::string_view route) {
    return spectra::solve(p, spectra::Sought::centred_norm, memory, accuracy, route);
}

}  // namespace tsdiag
