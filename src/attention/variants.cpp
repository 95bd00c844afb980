#include <string>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

// The list: one line per variant.
#define TSDIAG_ATTENTIONS(X) \
    X(softmax)               \
    X(polynomial)            \
    X(relu)                  \
    X(linear)                \
    X(performer)             \
    X(cosformer)             \
    X(norm_attention)        \
    X(diag_attention)        \
    X(linformer)             \
    X(nystrom)               \
    X(flash)                 \
    X(flash_quad)            \
    X(reformer)              \
    X(transformer_ls)        \
    X(bigbird)               \
    X(informer)              \
    X(kernelized)            \
    X(skyformer)             \
    X(transformer_xl)        \
    X(bucketed)              \
    X(relative_key)          \
    X(disentangled)          \
    X(sink)

namespace tsdiag {
namespace variants {
#define TSDIAG_DECLARE(name) extern const AttentionEntry name;
TSDIAG_ATTENTIONS(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace variants

namespace {
#define TSDIAG_ADDRESS(name) &variants::name,
constexpr const AttentionEntry* entries[] = {TSDIAG_ATTENTIONS(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
}  // namespace

std::span<const AttentionEntry* const> attentions() { return entries; }

const AttentionEntry& attention(std::string_view name) {
    std::vector<std::string_view> names;
    for (const AttentionEntry* e : entries) {
        if (e->name == name) return *e;
        names.push_back(e->name);
    }
    for (const AttentionPlan& plan : attention_plans()) names.push_back(plan.name);
    const std::string near = nearest(std::string(name), names);
    throw UsageError(
        "unknown attention '" + std::string(name) + "'" +
        (near.empty() ? "; see tsdiag list attentions." : ". Did you mean '" + near + "'?"));
}

}  // namespace tsdiag
