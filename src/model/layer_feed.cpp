#include "layer_feed.hpp"

#include <cmath>
#include <string>

#include "tsdiag/error.hpp"

namespace tsdiag::model {
namespace {

double bytes_of_layer(const LayerWeights& w) {
    double bytes = 0;
    const AttentionWeights& a = w.attention;
    for (const Linear* map :
         {&a.q, &a.k, &a.v, &a.o, &a.z, &a.gate, &w.ffn.up, &w.ffn.gate, &w.ffn.down})
        if (const Tensor& t = map->weight; t.defined())
            bytes += double(t.shape().count()) * double(bytes_of(t.type()));
    return bytes;
}

}  // namespace

LayerWeights LayerFeed::arrived(Index layer) {
    if (coming_layer_ != layer) return load_layer(weights_, spec_, layer);
    coming_layer_ = -1;
    try {
        return coming_.get();
    } catch (const OutOfMemory&) {  // the previous layer has since freed memory
        return load_layer(weights_, spec_, layer);
    }
}

LayerWeights LayerFeed::take(Index layer, Index next) {
    constexpr double room = 4;  // times the size of a layer: two layers, and the work on one
    LayerWeights weights = arrived(layer);
    const bool exists = next >= 0 && next < std::ssize(spec_.blocks);
    if (backend_.host_memory() || !exists ||
        double(backend_.available()) < room * bytes_of_layer(weights))
        return weights;
    coming_layer_ = next;
    coming_ = std::async(std::launch::async, [this, next] {
        LayerWeights found = load_layer(weights_, spec_, next);
        backend_.synchronise();  // for use by another thread
        return found;
    });
    return weights;
}

}  // namespace tsdiag::model
