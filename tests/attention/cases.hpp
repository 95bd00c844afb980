#pragma once
#include <string>
#include <vector>

#include "attention/heads.hpp"

/// Every entry of the list with its defaults, and with the options that change its formula.
namespace tsdiag::test {

struct Case {
    const AttentionEntry* entry = nullptr;
    std::string title;
    AttentionOptions options;
    Index n = 64;  ///< every default fits 64 tokens
    bool is_default() const { return options.empty(); }
};

inline std::vector<Case> cases() {
    std::vector<Case> all;
    for (const AttentionEntry* entry : attentions())
        all.push_back({entry, std::string(entry->name), {}, 64});
    const auto add = [&](const char* name, AttentionOptions options, Index n = 19) {
        std::string title = name;
        for (const auto& [key, value] : options) {
            title += "_" + key + "_";
            for (const char c : value) title += std::isalnum(c) ? c : '_';
        }
        all.push_back({&attention(name), title, std::move(options), n});
    };
    add("softmax", {{"alibi", "1"}});
    for (const char* p : {"1", "2", "4", "5", "6"}) add("polynomial", {{"p", p}});
    add("polynomial", {{"scale", "none"}});
    add("polynomial", {{"scale", "1/14"}});
    add("relu", {{"scale", "none"}});
    add("linear", {{"map", "elu"}});
    add("linear", {{"map", "relu"}});
    add("norm_attention", {{"map", "elu"}});
    add("norm_attention", {{"map", "relu"}});
    add("performer", {{"kernel", "relu"}, {"features", "7"}, {"seed", "3"}});
    add("performer", {{"features", "7"}, {"floor", "0.01"}});
    add("performer", {{"epsilon", "0"}});
    add("cosformer", {{"clamp", "1e-6"}});
    add("norm_attention", {{"map", "identity"}});
    add("diag_attention", {{"block", "5"}});
    add("diag_attention", {{"block", "5"}, {"padded", "1"}});
    add("diag_attention", {{"block", "5"}, {"activation", "rela"}});
    add("linformer", {{"length", "7"}, {"shared", "1"}});
    add("nystrom", {{"landmarks", "4"}}, 20);
    add("nystrom", {{"landmarks", "10"}, {"init", "exact"}, {"conv", "5"}}, 20);
    add("nystrom", {{"landmarks", "n"}}, 20);
    add("nystrom", {{"landmarks", "20"}, {"whole", "inverse"}}, 20);
    add("nystrom", {{"landmarks", "4"}, {"activation", "polynomial"}}, 20);
    add("nystrom",
        {{"landmarks", "10"}, {"activation", "polynomial"}, {"p", "2"}, {"scale", "none"}}, 20);
    add("nystrom",
        {{"landmarks", "5"}, {"activation", "polynomial"}, {"scale", "1/14"}, {"conv", "3"}}, 20);
    add("nystrom", {{"landmarks", "n"}, {"activation", "polynomial"}, {"p", "4"}}, 20);
    add("flash", {{"group", "6"}});
    add("reformer", {{"chunk", "4"}, {"rounds", "2"}});
    add("reformer", {{"chunk", "3"}, {"rounds", "3"}, {"duplicates", "1"}, {"keys", "rms"}});
    add("reformer", {{"chunk", "2"}, {"rounds", "4"}, {"buckets", "4"}, {"across", "1"}});
    add("reformer", {{"chunk", "3"},
                     {"rounds", "2"},
                     {"buckets", "power"},
                     {"across", "1"},
                     {"wrap", "1"},
                     {"duplicates", "1"}});
    add("transformer_ls", {{"segment", "4"}, {"rank", "3"}, {"chunk", "5"}});
    add("transformer_ls", {{"segment", "5"}, {"rank", "25"}, {"dual_ln", "0"}});
    add("bigbird", {{"block", "2"}, {"random", "1"}});
    add("bigbird", {{"block", "4"}, {"global", "0"}, {"neighbours", "0"}, {"random", "2"}});
    add("bigbird", {{"block", "2"}, {"choice", "first"}});
    add("informer", {{"factor", "1"}});
    add("informer", {{"factor", "2"}, {"divisor", "u"}, {"lazy", "mean"}});
    add("skyformer", {{"landmarks", "7"}, {"gamma", "0.01"}});
    add("skyformer", {{"landmarks", "30"}, {"draw", "all"}, {"init", "exact"}});
    add("transformer_xl", {{"clamp", "4"}});
    add("bucketed", {{"buckets", "8"}, {"longest", "6"}});
    add("relative_key", {{"keys", "1"}});
    add("disentangled", {{"buckets", "4"}, {"longest", "9"}});
    add("disentangled", {{"terms", "c2p"}, {"longest", "5"}});
    add("disentangled", {{"terms", "p2c"}});
    add("sink", {{"start", "1.5"}});
    return all;
}

}  // namespace tsdiag::test
