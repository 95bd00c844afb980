#pragma once
#include <future>

#include "layer.hpp"

namespace tsdiag::model {

/// The weights of layers in turn.  While a device works on one layer, another thread reads and
/// uploads the next one's, where there is memory for both.
class LayerFeed {
  public:
    LayerFeed(const Weights& weights, const ModelSpec& spec, const Backend& backend)
        : weights_(weights), spec_(spec), backend_(backend) {}

    /// Those of `layer`; prefetches `next` (at the end of the model: no layer).
    LayerSteps take(Index layer, Index next);

  private:
    LayerSteps arrived(Index layer);

    const Weights& weights_;
    const ModelSpec& spec_;
    const Backend& backend_;
    Index coming_layer_ = -1;
    std::future<LayerSteps> coming_;  // last: awaited before other members are destroyed
};

}  // namespace tsdiag::model
