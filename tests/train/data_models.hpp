#pragma once
#include <memory>
#include <string>

#include "train/data.hpp"
#include "tsdiag/spec.hpp"

/// What tests of training data share.
namespace tsdiag::test {

/// A model of tokens, as far as data read it.
inline ModelSpec tokens_model(Index vocabulary, bool causal = true) {
    ModelSpec spec;
    spec.name = "model";
    spec.embedding.vocabulary = vocabulary;
    spec.blocks.resize(1);
    spec.blocks[0].attention.causal = causal;
    return spec;
}

inline std::unique_ptr<training::Data> opened(const std::string& text, std::string loss = "") {
    return training::open_data(text, loss);
}

}  // namespace tsdiag::test
