#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stored.hpp"
#include "tsdiag/attention.hpp"

/// Routes to |lambda_2(P)| and |Pi2 P|_2: a list, tried in order.
namespace tsdiag::spectra {

/// A P on a device of at most so many tokens is so small that the host finds and proves its
/// spectrum from a copy sooner than the device is asked for the products of an iteration (decision
/// 132).
constexpr Index largest_for_host = 64;

enum class Sought { second_eigenvalue, centred_norm };

/// What is found out once about a P that is kept, for both numbers.
struct Facts {
    std::vector<Survey> surveys;
    std::optional<stored::Heads> host;
};

/// The heads of one attention, and the resources for them.
struct Problem {
    const AttentionOperator& p;
    Structure known;
    Sought sought;
    double memory, accuracy;
    std::string_view asked;  ///< "auto", or the requested solver
    bool kept;               ///< P fits into memory
    /// Of each head, delta where it was found beside lambda_2: filled by the search for lambda_2,
    /// read by the other.  Null: only one of them is sought.
    std::vector<std::optional<Estimate>>* beside = nullptr;
    std::shared_ptr<Facts> facts = std::make_shared<Facts>();

    /// Of each head of a P that is kept.
    const std::vector<Survey>& survey() const {
        if (facts->surveys.empty()) facts->surveys = p.backend().survey(p.matrix().view()).get();
        return facts->surveys;
    }
    /// A P that is kept, in host memory.
    const stored::Heads& host() const {
        if (!facts->host) facts->host.emplace(for_host() ? p.matrix_on_host() : p.matrix());
        return *facts->host;
    }

    bool on_device() const { return !p.backend().host_memory(); }
    bool for_host() const {
        return on_device() && kept && asked == "auto" && p.columns() <= largest_for_host;
    }
    bool for_norm() const { return sought == Sought::centred_norm; }
    /// Whether the solver of this name may be used: by choice or automatically.
    bool allows(std::string_view solver) const { return asked == "auto" || asked == solver; }
};

/// One per requested head; empty where the route does not apply to it.
using Found = std::vector<std::optional<Estimate>>;

struct Route {
    SpectralRoute about;
    bool (*applies)(const Problem& problem);
    /// For these heads.  Converged values are final, all others go to later routes.
    Found (*find)(const Problem& problem, std::span<const Index> heads);
    bool tests = false;  ///< a value is called converged by a test, not by a proof
};

/// The results of these heads out of those of all.
inline Found select(const std::vector<Estimate>& all, std::span<const Index> heads) {
    Found out;
    for (const Index k : heads) out.emplace_back(all[std::size_t(k)]);
    return out;
}

/// of(i) for i in [0, count), one after the other, `each` estimates of every i: each member of the
/// team has every size-th i.
Found shared(const Team* team, Index count, Index each, const std::function<Found(Index)>& of);

/// Whether all heads are iterated in step on their device.
bool in_step(const Problem& problem);
/// Whether delta of these heads is to be found with lambda_2, too; and what was found so.
bool with_norms(const Problem& problem);
Found found_before(const Problem& problem, std::span<const Index> heads);

/// These heads of a P that is kept.
Tensor chosen(const Tensor& p, std::span<const Index> heads);

/// of(P) of one head of a P that is kept, from a copy in host memory.
template <class Of>
std::optional<Estimate> copied(const Problem& problem, Index head, const Of& of) {
    std::optional<Estimate> found = of(stored::Heads(problem.p.matrix().batch_range(head, 1))[0]);
    if (found) found->on_host = problem.on_device();
    return found;
}

/// of(P) for these heads of a P that is kept, in host memory.
template <class Of>
Found each_kept(const Problem& problem, std::span<const Index> heads, const Of& of) {
    const bool in_its_place = problem.on_device() && !problem.for_host();
    Found out;
    if (in_its_place && std::ssize(heads) < problem.p.heads()) {
        for (const Index k : heads) out.push_back(copied(problem, k, of));
        return out;
    }
    const stored::Heads& all = problem.host();
    out = shared(problem.p.team(), std::ssize(heads), 1,
                 [&](Index i) { return Found{of(all[heads[std::size_t(i)]])}; });
    for (std::optional<Estimate>& found : out)
        if (found) found->on_host = in_its_place;
    return out;
}

}  // namespace tsdiag::spectra
