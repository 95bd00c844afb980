#include "tsdiag/team.hpp"

namespace tsdiag {

TeamSum::TeamSum(const Team* team, std::size_t size) : team_(team), size_(size) {
    const int own = team ? team->rank() : 0;
    share_.assign(begin(own + 1) - begin(own), 0.0);
}

std::size_t TeamSum::begin(int rank) const {
    return size_ * std::size_t(rank) / std::size_t(team_ ? team_->size() : 1);
}

void TeamSum::add(std::span<const double> own, int members) {
    const auto add_to_share = [&](std::span<const double> part) {
        for (std::size_t i = 0; i < share_.size(); ++i) share_[i] += part[i];
    };
    if (!team_) return add_to_share(own);
    auto parts = std::vector<std::string>(std::size_t(team_->size()));
    if (team_->rank() < members)
        for (int r = 0; r < team_->size(); ++r)
            parts[std::size_t(r)] = bytes_of_all(own.subspan(begin(r), begin(r + 1) - begin(r)));
    const std::vector<std::string> received = team_->exchange(parts);
    for (int r = 0; r < members; ++r)
        add_to_share(values_of_bytes<double>(received[std::size_t(r)]));
}

std::vector<double> TeamSum::total() const {
    if (!team_) return share_;
    std::vector<double> whole;
    whole.reserve(size_);
    for (const std::string& one : team_->gather(bytes_of_all(std::span<const double>(share_)))) {
        const std::vector<double> part = values_of_bytes<double>(one);
        whole.insert(whole.end(), part.begin(), part.end());
    }
    return whole;
}

}  // namespace tsdiag
