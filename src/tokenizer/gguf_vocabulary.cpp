#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "byte_words.hpp"
#include "models.hpp"
#include "parts.hpp"
#include "sentencepiece.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/tokenizer.hpp"
#include "unicode.hpp"

/// The tokenizer in the metadata of a GGUF file.
namespace tsdiag::tokenizer {
namespace {

constexpr std::string_view key_prefix = "tokenizer.ggml.";

using Lists = std::function<Json(std::string_view)>;

class GgufVocabulary {
  public:
    GgufVocabulary(const Json& metadata, const Lists& list, std::string source)
        : metadata_(metadata), list_(list), source_(std::move(source)) {}

    std::shared_ptr<Parts> read() {
        const std::string model = word("model", "");
        if (model.empty())
            refuse(
                "has no tokenizer; name one with --tokenizer FILE, or pass ids with --input "
                "ids:FILE");
        parts_->source = source_;
        read_tokens();
        if (model == "gpt2")
            read_bytes();
        else if (model == "llama" || model == "t5")
            read_pieces(model == "t5");
        else if (model == "bert")
            read_word_pieces();
        else
            refuse(
                fmt::format("has a tokenizer '{}', which is not supported (gpt2, llama, t5 and "
                            "bert are)",
                            visible(shortened(model, 60))));
        require_known_keys();
        parts_->model->source = source_;
        parts_->size = Id(tokens_.size());
        parts_->raw.finish();
        parts_->normalised.finish();
        parts_->notes.push_back(fmt::format("tokenizer.ggml.model {}{}", model, noted_));
        return parts_;
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw FormatError(fmt::format("{}: {}.", source_, what));
    }
    [[noreturn]] void refuse_value(std::string_view key) const {
        refuse(fmt::format("its {}{} is {}, which is not supported", key_prefix, key,
                           visible(shortened(metadata_[full(key)].dump(), 60))));
    }
    static std::string full(std::string_view key) { return std::string(key_prefix).append(key); }
    const Json& said(std::string_view key) {
        used_.insert(full(key));
        return metadata_[full(key)];
    }
    std::string word(std::string_view key, std::string_view otherwise) {
        const Json& value = said(key);
        if (value.is_null()) return std::string(otherwise);
        if (!value.is_string()) refuse_value(key);
        return value.string();
    }
    bool flag(std::string_view key, bool otherwise) {
        const Json& value = said(key);
        if (value.is_null()) return otherwise;
        if (!value.is_bool()) refuse_value(key);
        return value.boolean();
    }
    /// The id under `key`; `otherwise` where there is none.
    Id id(std::string_view key, Id otherwise) {
        const Json& value = said(key);
        if (value.is_null()) return otherwise;
        if (!value.is_integer() || value.integer() < 0 || value.integer() >= Id(tokens_.size()))
            refuse_value(key);
        return value.integer();
    }
    Json whole(std::string_view key) {
        used_.insert(full(key));
        return list_(full(key));
    }

    void read_tokens() {
        const Json texts = whole("tokens"), types = whole("token_type");
        if (!texts.is_array() || texts.array().empty()) refuse("has no list tokenizer.ggml.tokens");
        for (const Json& text : texts.array()) {
            if (!text.is_string()) refuse("has a token that is no text");
            tokens_.push_back(text.string());
            require_utf8(tokens_.back(), source_ + ": token " + std::to_string(tokens_.size() - 1));
        }
        types_.assign(tokens_.size(), Piece::normal);
        if (types.is_null()) return;
        if (!types.is_array() || types.array().size() != tokens_.size())
            refuse(fmt::format("has {} tokens, but not as many in tokenizer.ggml.token_type",
                               tokens_.size()));
        for (std::size_t i = 0; i < types_.size(); ++i) {
            const Json& type = types.array()[i];
            if (!type.is_integer() || type.integer() < 1 || type.integer() > int(Piece::byte))
                refuse(fmt::format("has token {} of type {}, expected 1 to {}", i, type.dump(),
                                   int(Piece::byte)));
            types_[i] = Piece(type.integer());
        }
    }
    std::vector<double> scores() {
        const Json list = whole("scores");
        std::vector<double> out;
        if (list.is_array())
            for (const Json& one : list.array())
                if (one.is_number() && std::isfinite(one.number())) out.push_back(one.number());
        if (out.size() != tokens_.size())
            refuse(fmt::format("has {} tokens, but not as many numbers in tokenizer.ggml.scores",
                               tokens_.size()));
        return out;
    }

    bool is(std::size_t i, std::initializer_list<Piece> types) const {
        return std::ranges::find(types, types_[i]) != types.end();
    }
    /// Tokens that are found in a text before the model sees it.
    void add_found(std::initializer_list<Piece> types) {
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            if (!is(i, types)) continue;
            add_token(*parts_, parts_->raw, tokens_[i], Id(i));
            if (types_[i] == Piece::user_defined) parts_->ordinary.insert(Id(i));
        }
    }
    void surround(bool begins, bool ends, Id first, Id last) {
        if (flag("add_bos_token", begins)) {
            if (first = id("bos_token_id", first); first == none)
                refuse("puts a token before each text, but has no tokenizer.ggml.bos_token_id");
            parts_->before = {first};
        }
        if (flag("add_eos_token", ends)) {
            if (last = id("eos_token_id", last); last == none)
                refuse("puts a token behind each text, but has no tokenizer.ggml.eos_token_id");
            parts_->after = {last};
        }
    }

    void read_bytes() {
        const std::string pre = word("pre", "");
        const ByteWords* words = byte_words(pre);
        if (words == nullptr)
            refuse(
                fmt::format("divides words by tokenizer.ggml.pre '{}', which is not supported "
                            "({} are); name a tokenizer.json with --tokenizer FILE",
                            visible(shortened(pre, 60)), known_byte_words()));
        noted_ = ", pre " + pre;
        auto model = std::make_unique<Bpe>();
        model->kind = "BPE";
        model->ignore_merges = words->whole_first;
        for (std::size_t i = 0; i < tokens_.size(); ++i)
            if (is(i, {Piece::normal, Piece::byte}))
                model->vocabulary.add(tokens_[i], Id(i), source_);
        const Json merges = whole("merges");
        if (!merges.is_array()) refuse("has no list tokenizer.ggml.merges");
        std::int64_t rank = 0;
        for (const Json& merge : merges.array()) {
            const std::vector<std::string> two =
                merge.is_string() ? split(merge.string(), ' ') : std::vector<std::string>();
            if (two.size() != 2)
                refuse(fmt::format("has merge {} = {}, expected two tokens", rank,
                                   visible(shortened(merge.dump(), 60))));
            model->add_merge(two[0], two[1], rank++, source_);
        }
        model->finish();
        parts_->model = std::move(model);
        divide_bytes(*words, *parts_);
        if (flag("add_space_prefix", false)) refuse_value("add_space_prefix");
        add_found({Piece::unknown, Piece::control, Piece::user_defined});
        surround(words->begins, false, none, none);
    }

    /// SentencePiece's BPE or Unigram.
    void read_pieces(bool unigram) {
        SentencePieces pieces;
        pieces.tokens = tokens_;
        pieces.types = types_;
        pieces.scores = scores();
        pieces.unigram = unigram;
        pieces.unknown = id("unknown_token_id", unigram ? 2 : 0);
        pieces.space_before = flag("add_space_prefix", true);
        pieces.single_spaces = flag("remove_extra_whitespaces", unigram);
        pieces.charsmap = charsmap();
        read_sentence_pieces(pieces, source_, *parts_);
        add_found({Piece::unknown, Piece::control, Piece::user_defined});
        unigram ? surround(false, true, none, 1) : surround(true, false, 1, 2);
    }
    /// The bytes of the rules of normalisation; empty: none.
    std::string charsmap() {
        const Json rules = whole("precompiled_charsmap");
        if (rules.is_null()) return "";
        if (!rules.is_array()) refuse_value("precompiled_charsmap");
        std::string bytes;
        for (const Json& one : rules.array()) {
            if (!one.is_integer() || one.integer() < -128 || one.integer() > 255)
                refuse("has a number in tokenizer.ggml.precompiled_charsmap that is no byte");
            bytes += char(one.integer() & 0xff);
        }
        return bytes;
    }

    /// WordPiece: here a word begins with U+2581, in BERT's vocabulary the rest of one with ##.
    void read_word_pieces() {
        auto model = std::make_unique<WordPiece>();
        model->kind = "WordPiece";
        model->unknown = "[UNK]";
        model->continuing_prefix = "##";
        bool lower = true;
        for (std::size_t i = 0; i < tokens_.size(); ++i) {
            std::string& token = tokens_[i];
            if (types_[i] == Piece::normal) {
                token =
                    token.starts_with(space_mark) ? token.substr(space_mark.size()) : "##" + token;
                const bool special = token.starts_with('[') && token.ends_with(']');
                for (const char c : token) lower = lower && (special || c < 'A' || c > 'Z');
            }
            model->vocabulary.add(token, Id(i), source_);
        }
        const auto required = [&](std::string_view token, std::string_view key) {
            const Id found = model->vocabulary.find(token);
            if (found == none || id(key, found) != found)
                refuse(fmt::format("has no {}, or another tokenizer.ggml.{}", token, key));
            return found;
        };
        required("[UNK]", "unknown_token_id");
        const Id first = required("[CLS]", "cls_token_id"),
                 last = required("[SEP]", "seperator_token_id");
        for (const char* key : {"add_bos_token", "add_sep_token"})
            if (!flag(key, true)) refuse_value(key);
        said("add_eos_token");  // the separator is that
        if (flag("add_space_prefix", false)) refuse_value("add_space_prefix");
        word("pre", "");
        model->finish();
        parts_->model = std::move(model);
        parts_->normalizer = bert_normalizer(true, true, lower, lower);
        parts_->pre_tokenizer = bert_words();
        noted_ = lower ? ", in lower case, as the vocabulary is"
                       : ", not in lower case: the vocabulary has capitals";
        add_found({Piece::unknown, Piece::control, Piece::user_defined});
        parts_->before = {first};
        parts_->after = {last};
    }

    /// Keys of ids are read where they are needed; any other may change what a text becomes.
    void require_known_keys() {
        word("pre", "");
        said("token_type_count");  // of the model
        whole("merges");
        whole("scores");
        for (const auto& [key, value] : metadata_.object())
            if (key.starts_with(key_prefix) && !used_.contains(key) && !key.ends_with("_token_id"))
                refuse(fmt::format("has the key {}, which is not supported", key));
    }

    const Json& metadata_;
    const Lists& list_;
    std::string source_, noted_;
    std::set<std::string> used_;
    std::vector<std::string> tokens_;
    std::vector<Piece> types_;
    std::shared_ptr<Parts> parts_ = std::make_shared<Parts>();
};

}  // namespace
}  // namespace tsdiag::tokenizer

namespace tsdiag {

Tokenizer gguf_tokenizer(const Json& metadata,
                         const std::function<Json(std::string_view key)>& list,
                         std::string_view source) {
    return Tokenizer(tokenizer::GgufVocabulary(metadata, list, std::string(source)).read());
}

}  // namespace tsdiag
