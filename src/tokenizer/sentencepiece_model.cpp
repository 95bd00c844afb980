#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>

#include "sentencepiece.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "unicode.hpp"

/// SentencePiece's own files, tokenizer.model: a protocol buffer, `ModelProto` of its
/// sentencepiece_model.proto.
namespace tsdiag::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t largest_model = std::uint64_t{64} << 20;

/// The fields of a message, in order.
class Message {
  public:
    Message(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

    struct Field {
        std::uint64_t number = 0, value = 0;  ///< of a fixed field its bits
        std::string_view text;                ///< of a field with a length
        int wire = 0;
    };
    /// nullopt: there is no other.
    std::optional<Field> next() {
        if (bytes_.empty()) return std::nullopt;
        const std::uint64_t tag = varint();
        Field field;
        field.number = tag >> 3;
        field.wire = int(tag & 7);
        if (field.wire == 0)
            field.value = varint();
        else if (field.wire == 1)
            field.value = fixed(8);
        else if (field.wire == 5)
            field.value = fixed(4);
        else if (field.wire == 2)
            field.text = taken(varint());
        else
            damaged();
        return field;
    }
    [[noreturn]] void damaged() const {
        throw FormatError(fmt::format(
            "{}: is no whole SentencePiece model; is the file complete? Download it again.",
            source_));
    }

  private:
    std::string_view taken(std::uint64_t count) {
        if (count > bytes_.size()) damaged();
        const std::string_view out = bytes_.substr(0, std::size_t(count));
        bytes_.remove_prefix(std::size_t(count));
        return out;
    }
    std::uint64_t fixed(std::size_t count) {
        std::uint64_t out = 0;
        const std::string_view bytes = taken(count);
        for (std::size_t i = 0; i < count; ++i)
            out |= std::uint64_t(static_cast<unsigned char>(bytes[i])) << (8 * i);
        return out;
    }
    std::uint64_t varint() {
        std::uint64_t out = 0;
        constexpr int most = 64;
        for (int shift = 0; shift < most; shift += 7) {
            const auto byte = static_cast<unsigned char>(taken(1).front());
            out |= std::uint64_t(byte & 0x7f) << shift;
            if (byte < 0x80) return out;
        }
        damaged();
    }

    std::string_view bytes_;
    const std::string& source_;
};

struct SentenceModel {
    SentencePieces pieces;
    Id first = 1, last = 2;  ///< <s> and </s>
};

class ModelReader {
  public:
    ModelReader(std::string_view bytes, const std::string& source)
        : bytes_(bytes), source_(source) {}

    SentenceModel read() {
        SentencePieces& p = out_.pieces;
        p.unigram = true;  // unless it says otherwise
        Message whole(bytes_, source_);
        bool trained = false, normalised = false;  // they stand behind the pieces
        while (const auto field = whole.next()) {
            if (field->number == 1) read_piece(text_of(whole, *field));
            if (field->number == 2) read_trainer(text_of(whole, *field));
            if (field->number == 3) read_normaliser(text_of(whole, *field));
            trained = trained || field->number == 2;
            normalised = normalised || field->number == 3;
        }
        if (p.tokens.empty() || !trained || !normalised) whole.damaged();
        const auto unknown = std::ranges::find(p.types, Piece::unknown);
        if (unknown == p.types.end()) refuse("has no piece for what is unknown");
        p.unknown = Id(unknown - p.types.begin());
        return std::move(out_);
    }

  private:
    [[noreturn]] void refuse(const std::string& what) const {
        throw FormatError(fmt::format("{}: {}.", source_, what));
    }
    static std::string_view text_of(const Message& message, const Message::Field& field) {
        if (field.wire != 2) message.damaged();
        return field.text;
    }

    void read_piece(std::string_view bytes) {
        SentencePieces& p = out_.pieces;
        Message piece(bytes, source_);
        std::string token;
        double score = 0;
        std::uint64_t type = std::uint64_t(Piece::normal);
        while (const auto field = piece.next()) {
            if (field->number == 1) token = text_of(piece, *field);
            if (field->number == 2)
                score = double(std::bit_cast<float>(std::uint32_t(field->value)));
            if (field->number == 3) type = field->value;
        }
        constexpr std::size_t most = std::size_t{1} << 22;
        if (p.tokens.size() >= most) refuse(fmt::format("has more than {} pieces", most));
        if (type < 1 || type > std::uint64_t(Piece::byte) || !std::isfinite(score))
            refuse(
                fmt::format("has piece {} of type {} and score {}", p.tokens.size(), type, score));
        require_utf8(token, fmt::format("{}: piece {}", source_, p.tokens.size()));
        p.tokens.push_back(std::move(token));
        p.types.push_back(Piece(type));
        p.scores.push_back(score);
    }

    void read_trainer(std::string_view bytes) {
        Message trainer(bytes, source_);
        constexpr std::uint64_t unigram = 1, bpe = 2;
        while (const auto field = trainer.next()) {
            if (field->number == 3 && field->value != unigram && field->value != bpe)
                refuse("divides words or characters, which is not supported (Unigram and BPE are)");
            if (field->number == 3) out_.pieces.unigram = field->value == unigram;
            if (field->number == 24 && field->value != 0)
                refuse("treat_whitespace_as_suffix is true, which is not supported");
            if (field->number == 41) out_.first = id(field->value);
            if (field->number == 42) out_.last = id(field->value);
        }
    }
    /// -1: there is none.
    static Id id(std::uint64_t value) {
        return value <= std::uint64_t(largest_id) ? Id(value) : none;
    }

    void read_normaliser(std::string_view bytes) {
        Message normaliser(bytes, source_);
        while (const auto field = normaliser.next()) {
            if (field->number == 2) out_.pieces.charsmap = text_of(normaliser, *field);
            if (field->number == 3) out_.pieces.space_before = field->value != 0;
            if (field->number == 4) out_.pieces.single_spaces = field->value != 0;
            if (field->number == 5 && field->value == 0)
                refuse("escape_whitespaces is false, which is not supported");
        }
    }

    std::string_view bytes_;
    const std::string& source_;
    SentenceModel out_;
};

/// Their tokenizers put <s> before a text, unless tokenizer_config.json says otherwise.
constexpr std::array<std::string_view, 6> known_types{"llama", "mistral", "mixtral",
                                                      "gemma", "gemma2",  "gemma3_text"};

/// Refuses what tokenizer_config.json asks of SentencePiece beyond the text's own division.
void require_plain(const Json& config, const SentencePieces& pieces, const std::string& source) {
    const auto refuse = [&](const std::string& what) {
        throw FormatError(
            fmt::format("{}: tokenizer_config.json has {}; name a tokenizer.json with --tokenizer "
                        "FILE, or pass ids with --input ids:FILE.",
                        source, what));
    };
    const Json& prefix = config["add_prefix_space"];
    if (prefix.is_bool() && prefix.boolean() != pieces.space_before)
        refuse(fmt::format("add_prefix_space {}, but the model puts {} before a text",
                           prefix.boolean(), pieces.space_before ? "a space" : "no space"));
    const Json& options = config["sp_model_kwargs"];
    if (options.is_null()) return;
    if (!options.is_object()) refuse("sp_model_kwargs that are no object");
    // Without enable_sampling those of sampling have no effect.
    constexpr std::array<std::string_view, 3> idle{"alpha", "nbest_size", "num_threads"};
    for (const auto& [key, value] : options.object())
        if (std::ranges::find(idle, key) == idle.end() && !value.is_null() &&
            !(value.is_bool() && !value.boolean()))
            refuse(fmt::format("'{}' {} in sp_model_kwargs, which is not supported",
                               visible(shortened(key, 60)), visible(shortened(value.dump(), 60))));
}

/// `legacy` false: no space is put before what is behind a token inside the text.
void obey_legacy(const Json& config, SentencePieces pieces, const std::string& source,
                 Parts& parts) {
    const Json& legacy = config["legacy"];
    if (!legacy.is_bool() || legacy.boolean() || !pieces.space_before || pieces.single_spaces)
        return;
    pieces.space_before = false;
    parts.inside = normalizer_of(pieces, source);
}

}  // namespace

std::shared_ptr<Parts> read_sentence_model(const fs::path& file, const Json& config,
                                           const Json& tokenizer_config, bool alone) {
    const std::string source = file.string();
    const std::string bytes = file_text(file, "a SentencePiece model", largest_model);
    if (holds_ranks(bytes)) return read_meta_ranks(file, bytes, config, tokenizer_config, alone);
    const SentenceModel model = ModelReader(bytes, source).read();
    const SentencePieces& p = model.pieces;
    auto parts = std::make_shared<Parts>();
    parts->source = source;
    read_sentence_pieces(p, source, *parts);
    parts->model->source = source;
    parts->size = Id(p.tokens.size());
    for (std::size_t i = 0; i < p.tokens.size(); ++i) {
        if (p.types[i] == Piece::user_defined) {  // found behind normalisation, as by the library
            add_token(*parts, parts->normalised, p.tokens[i], Id(i));
            parts->ordinary.insert(Id(i));
        }
        if (p.types[i] == Piece::control || p.types[i] == Piece::unknown)
            add_token(*parts, parts->raw, p.tokens[i], Id(i));
    }
    parts->raw.finish();
    parts->normalised.finish();
    parts->notes.push_back(fmt::format("{} {}", file.filename().string(), sha256(bytes)));
    if (alone) {
        parts->notes.emplace_back("nothing is put around a text: a .model does not say what is");
        return parts;
    }
    const Json& type = config["model_type"];
    if (!type.is_string() || std::ranges::find(known_types, type.string()) == known_types.end())
        throw FormatError(fmt::format(
            "{}: what is put around a text is known for {}, but config.json says '{}'; name the "
            "file with --tokenizer to put nothing.",
            source, fmt::join(known_types, ", "),
            type.is_string() ? visible(shortened(type.string(), 60)) : "nothing"));
    require_plain(tokenizer_config, p, source);
    obey_legacy(tokenizer_config, p, source, *parts);
    std::unordered_map<std::string, Id> unused;
    for (std::size_t i = 0; i < p.tokens.size(); ++i)
        if (p.types[i] == Piece::unused) unused.emplace(p.tokens[i], Id(i));
    const fs::path folder = file.parent_path();
    add_declared_tokens(folder, *parts, Missing::refused, std::move(unused));
    const DeclaredNames declared(folder);
    const auto around = [&](const char* key, const char* name, bool otherwise, Id id,
                            std::vector<Id>& where) {
        const Json& said = tokenizer_config[key];
        if (!(said.is_bool() ? said.boolean() : otherwise)) return;
        // The token of that name, if one is declared.
        const std::string named = declared.of(name, "");
        for (const auto& [own, content] : parts->added)
            if (!named.empty() && content == named) id = own;
        if (id < 0 || id >= Id(p.tokens.size()))
            throw FormatError(fmt::format("{}: has no token for {}.", source, key));
        where = {id};
    };
    around("add_bos_token", "bos_token", true, model.first, parts->before);
    around("add_eos_token", "eos_token", false, model.last, parts->after);
    return parts;
}

}  // namespace tsdiag::tokenizer
