#include <fmt/format.h>

#include <cmath>

#include "models.hpp"
#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::tokenizer {
namespace {

void read_vocabulary(const Component& c, Vocabulary& vocabulary) {
    const Component vocab = c.member("vocab");
    if (!vocab.json().is_object()) c.refuse_value("vocab");
    for (const auto& [token, id] : vocab.json().object()) {
        if (!id.is_integer())
            throw FormatError(fmt::format("{}: the id of '{}' is no integer.", vocab.where(),
                                          visible(shortened(token, 60))));
        vocabulary.add(token, id.integer(), vocab.where());
    }
}

std::unique_ptr<Model> read_bpe(const Component& c) {
    c.require_keys({"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                    "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    auto model = std::make_unique<Bpe>();
    if (const Json& dropout = c.json()["dropout"];
        !dropout.is_null() && !(dropout.is_number() && dropout.number() == 0))
        c.refuse_value("dropout");  // would be random
    if (!c.json()["unk_token"].is_null()) model->unknown = c.text("unk_token");
    model->continuing_prefix = c.text("continuing_subword_prefix", "");
    model->end_suffix = c.text("end_of_word_suffix", "");
    model->fuse_unknown = c.flag("fuse_unk", false);
    model->byte_fallback = c.flag("byte_fallback", false);
    model->ignore_merges = c.flag("ignore_merges", false);
    read_vocabulary(c, model->vocabulary);
    const Component merges = c.member("merges");
    if (!merges.json().is_array()) c.refuse_value("merges");
    std::int64_t rank = 0;
    for (const Json& merge : merges.json().array()) {
        std::vector<std::string> two;
        if (merge.is_string())
            two = split(merge.string(), ' ');
        else if (merge.is_array())
            for (const Json& side : merge.array()) two.push_back(side.string());
        if (two.size() != 2)
            throw FormatError(fmt::format("{}: merge {} is {}, expected two tokens.",
                                          merges.where(), rank,
                                          visible(shortened(merge.dump(), 60))));
        model->add_merge(two[0], two[1], rank++, merges.where());
    }
    model->finish();
    return model;
}

std::unique_ptr<Model> read_wordpiece(const Component& c) {
    c.require_keys({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
    auto model = std::make_unique<WordPiece>();
    model->unknown = c.text("unk_token", "[UNK]");
    model->continuing_prefix = c.text("continuing_subword_prefix", "##");
    if (const Json& most = c.json()["max_input_chars_per_word"]; !most.is_null()) {
        if (!most.is_integer() || most.integer() < 0) c.refuse_value("max_input_chars_per_word");
        model->longest_word = std::size_t(most.integer());
    }
    read_vocabulary(c, model->vocabulary);
    model->finish();
    return model;
}

std::unique_ptr<Model> read_word_level(const Component& c) {
    c.require_keys({"unk_token", "vocab"});
    auto model = std::make_unique<WordLevel>();
    model->unknown = c.text("unk_token", "<unk>");
    read_vocabulary(c, model->vocabulary);
    return model;
}

std::unique_ptr<Model> read_unigram(const Component& c) {
    c.require_keys({"unk_id", "vocab", "byte_fallback"});
    auto model = std::make_unique<Unigram>();
    const Component vocab = c.member("vocab");
    if (!vocab.json().is_array()) c.refuse_value("vocab");
    for (const Json& entry : vocab.json().array()) {
        const std::size_t id = model->scores.size();
        if (!entry.is_array() || entry.array().size() != 2 || !entry.array()[0].is_string() ||
            !entry.array()[1].is_number() || !std::isfinite(entry.array()[1].number()))
            throw FormatError(fmt::format("{}: entry {} is {}, expected a token and its score.",
                                          vocab.where(), id, visible(shortened(entry.dump(), 60))));
        model->vocabulary.add(entry.array()[0].string(), Id(id), vocab.where());
        model->scores.push_back(entry.array()[1].number());
    }
    if (const Json& unknown = c.json()["unk_id"]; !unknown.is_null()) {
        if (!unknown.is_integer() || unknown.integer() < 0 ||
            unknown.integer() >= Id(model->scores.size()))
            c.refuse_value("unk_id");
        model->unknown = unknown.integer();
    }
    model->byte_fallback = c.flag("byte_fallback", false);
    model->finish();
    return model;
}

/// Files of early versions do not name it.
std::string kind_of(const Component& c) {
    if (!c.json().is_object()) c.type();
    if (c.json().contains("type")) return c.type();
    if (c.json().contains("merges")) return "BPE";
    if (c.json()["vocab"].is_array()) return "Unigram";
    return c.json().contains("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

}  // namespace

void Bpe::add_merge(const std::string& left, const std::string& right, std::int64_t rank,
                    std::string_view from) {
    const auto known = [&](std::string_view token) {
        const Id id = vocabulary.find(token);
        if (id == none)
            throw FormatError(
                fmt::format("{}: merge {} needs '{}', which is not in the vocabulary.", from, rank,
                            visible(shortened(token, 60))));
        return id;
    };
    const Id a = known(left), b = known(right);
    const std::size_t prefix = std::min(continuing_prefix.size(), right.size());
    merges_[key(a, b)] = {rank, known(left + right.substr(prefix))};
}

std::unique_ptr<Model> read_model(const Component& c) {
    const std::string kind = kind_of(c);
    std::unique_ptr<Model> model = kind == "BPE"         ? read_bpe(c)
                                   : kind == "WordPiece" ? read_wordpiece(c)
                                   : kind == "WordLevel" ? read_word_level(c)
                                   : kind == "Unigram"   ? read_unigram(c)
                                                         : nullptr;
    if (!model) c.refuse();
    model->kind = kind;
    model->source = c.where();
    return model;
}

}  // namespace tsdiag::tokenizer
