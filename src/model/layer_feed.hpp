#pragma once
#include <future>

#include "layer.hpp"

namespace tsdiag::model {

/// The weights of layers in turn.  While one layer is at work on a device, those of the next are
/// read and brought there by another thread, where there is room for both.
class LayerFeed {
  public:
    LayerFeed(const Weights& weights, const ModelSpec& spec, const Backend& backend)
        : weights_(weights), spec_(spec), backend_(backend) {}

    /// Those of `layer`; `next` will be asked for then (at the end of the model: no layer).
    LayerWeights take(Index layer, Index next);

  private:
    LayerWeights arrived(Index layer);

    const Weights& weights_;
    const ModelSpec& spec_;
    const Backend& backend_;
    Index coming_layer_ = -1;
    std::future<LayerWeights> coming_;  // last: it is waited for before anything else goes
};

}  // namespace tsdiag::model
