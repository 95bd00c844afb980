#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tsdiag/train.hpp"
#include "tsdiag/weights.hpp"

namespace tsdiag::training {

/// The trained parameters, on the backend.  The optimiser owns and overwrites them; nobody else may
/// keep them beyond a step.
class Parameters final : public Weights {
  public:
    void set(const std::string& name, Tensor value) { tensors_[name] = std::move(value); }
    bool has(std::string_view name) const override { return tensors_.contains(name); }
    Tensor get(std::string_view name) const override;
    std::vector<std::string> names() const override;
    const std::map<std::string, Tensor, std::less<>>& all() const { return tensors_; }

  private:
    std::map<std::string, Tensor, std::less<>> tensors_;
};

/// The moments of AdamW, and its step.
class Optimiser {
  public:
    explicit Optimiser(AdamW adam) : adam_(adam) {}
    /// Updates each parameter by its gradient times `factor`; t counts steps from 1.
    void update(const Parameters& parameters,
                const std::vector<std::pair<std::string, Tensor>>& gradients, double factor,
                double rate, Index t);

    struct State {
        Tensor m, v;
    };
    const std::map<std::string, State>& states() const { return states_; }
    void restore(const std::string& name, State state) { states_[name] = std::move(state); }

  private:
    AdamW adam_;
    std::map<std::string, State> states_;
};

/// Only matrices have weight decay.
inline bool decays(const Tensor& w) { return w.rows() > 1; }

}  // namespace tsdiag::training
