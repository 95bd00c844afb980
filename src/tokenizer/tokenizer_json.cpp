#include <fmt/format.h>

#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/tokenizer.hpp"
#include "unicode.hpp"

/// tokenizer.json, as the tokenizers library of Hugging Face writes it.
namespace tsdiag::tokenizer {

namespace fs = std::filesystem;

namespace {

void read_added(const Component& c, Parts& parts, const Limits& limits) {
    c.require_keys({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    const std::string content = token.content = c.text("content");
    const Json& id = c.json()["id"];
    if (!id.is_integer() || id.integer() < 0 || id.integer() > largest_id) c.refuse_value("id");
    token.id = id.integer();
    if (const Id other = parts.model->vocabulary.find(content); other != none && other != token.id)
        throw FormatError(fmt::format("{}: '{}' has the id {}, but {} in the vocabulary.",
                                      c.where(), visible(content), token.id, other));
    // The library gives it the next id, whatever is said.
    const auto before = parts.added.find(token.id);
    if (const std::string holder =
            before != parts.added.end() ? before->second : parts.model->vocabulary.token(token.id);
        !holder.empty() && holder != content)
        throw FormatError(fmt::format("{}: '{}' and '{}' have the id {}.", c.where(),
                                      visible(holder), visible(content), token.id));
    token.single_word = c.flag("single_word", false);
    token.left_strip = c.flag("lstrip", false);
    token.right_strip = c.flag("rstrip", false);
    const bool normal = c.flag("normalized", true);
    if (normal && parts.normalizer) parts.normalizer(token.content, limits);
    parts.size = std::max(parts.size, token.id + 1);
    parts.added[token.id] = content;
    if (!c.flag("special", false)) parts.ordinary.insert(token.id);
    (normal ? parts.normalised : parts.raw).add(std::move(token));
}

}  // namespace

std::shared_ptr<Parts> read_tokenizer_json(const Json& json, const std::string& source) {
    const Component whole(json, source);
    whole.require_keys({"version", "truncation", "padding", "added_tokens", "normalizer",
                        "pre_tokenizer", "post_processor", "decoder", "model"});
    if (!json.contains("model"))
        throw FormatError(fmt::format("{}: has no model, expected a tokenizer.json.", source));
    if (json.contains("version") && whole.text("version") != "1.0") whole.refuse_value("version");
    auto parts = std::make_shared<Parts>();
    parts->source = source;
    if (!json["normalizer"].is_null()) {
        parts->normalizer = read_normalizer(whole.member("normalizer"));
        parts->byte_level = json["normalizer"].dump().find("\"ByteLevel\"") != std::string::npos;
    }
    if (!json["pre_tokenizer"].is_null())
        parts->pre_tokenizer = read_pre_tokenizer(whole.member("pre_tokenizer"), parts->byte_level);
    parts->model = read_model(whole.member("model"));
    parts->size = parts->model->vocabulary.size();
    const Limits limits(1 << 20);
    if (!json["added_tokens"].is_null())
        for (const Component& token : whole.list("added_tokens")) read_added(token, *parts, limits);
    parts->raw.finish();
    parts->normalised.finish();
    if (!json["post_processor"].is_null())
        read_post_processor(whole.member("post_processor"), *parts);
    return parts;
}

namespace {

bool is(const Json& part, std::string_view type) {
    return part["type"].is_string() && part["type"].string() == type;
}

/// Compares a tokenizer_config.json with the parts of a tokenizer.json.
class SameFlags {
  public:
    SameFlags(const Json& config, std::string source)
        : config_(config), source_(std::move(source)) {}

    void require(const Json& part, const char* of, const char* key, const char* own) const {
        const Json &said = config_[key], &has = part[own];
        if (!is(part, of) || !said.is_bool() || !has.is_bool() || said.boolean() == has.boolean())
            return;
        refuse(key, fmt::format("{} of tokenizer.json is {}", own, has.boolean()));
    }
    /// They are stripped where capitals are, unless it is said.
    void require_accents(const Json& part) const {
        const Json &said = config_["strip_accents"], &has = part["strip_accents"];
        if (!is(part, "BertNormalizer") || !config_.contains("strip_accents")) return;
        const bool lower = !part["lowercase"].is_bool() || part["lowercase"].boolean();
        const bool own = has.is_bool() ? has.boolean() : lower;
        if ((said.is_bool() ? said.boolean() : lower) == own) return;
        refuse("strip_accents",
               fmt::format("tokenizer.json {} accents (its strip_accents is {}, its lowercase {})",
                           own ? "strips" : "keeps", has.dump(), lower));
    }
    /// That of a Metaspace or Prepend, which false contradicts.
    void require_space(const Json& part) const {
        const Json& said = config_["add_prefix_space"];
        if (!said.is_bool() || said.boolean()) return;
        const Json &scheme = part["prepend_scheme"], &old = part["add_prefix_space"],
                   &text = part["prepend"];
        const bool metaspace =
            is(part, "Metaspace") &&
            (scheme.is_string() ? scheme.string() != "never" : !old.is_bool() || old.boolean());
        const bool prepends = is(part, "Prepend") && text.is_string() &&
                              (text.string() == space_mark || text.string() == " ");
        if (metaspace || prepends)
            refuse("add_prefix_space",
                   fmt::format("{} of tokenizer.json puts a space before a text",
                               metaspace ? "Metaspace" : "Prepend"));
    }

  private:
    [[noreturn]] void refuse(const char* key, const std::string& own) const {
        throw FormatError(fmt::format(
            "{}: {} is {}, but {}; name the file that is right with --tokenizer FILE, or pass ids "
            "with --input ids:FILE.",
            source_, key, config_[key].dump(), own));
    }

    const Json& config_;
    std::string source_;
};

template <class F>
void each_part(const Json& whole, const char* list, const F& f) {
    f(whole);
    if (whole[list].is_array())
        for (const Json& part : whole[list].array()) f(part);
}

}  // namespace

void require_same_flags(const fs::path& folder, const Json& json) {
    const Json config = json_beside(folder, "tokenizer_config.json");
    if (!config.is_object()) return;
    const SameFlags same(config, (folder / "tokenizer_config.json").string());
    each_part(json["normalizer"], "normalizers", [&](const Json& part) {
        same.require(part, "BertNormalizer", "do_lower_case", "lowercase");
        same.require_accents(part);
        same.require(part, "BertNormalizer", "tokenize_chinese_chars", "handle_chinese_chars");
        same.require_space(part);
    });
    each_part(json["pre_tokenizer"], "pretokenizers", [&](const Json& part) {
        same.require(part, "ByteLevel", "add_prefix_space", "add_prefix_space");
        same.require_space(part);
    });
}

}  // namespace tsdiag::tokenizer

namespace tsdiag {

namespace fs = std::filesystem;

namespace {

/// A tokenizer.json, not a file of weights or a folder.
bool names_tokenizer(const fs::path& path) {
    std::error_code failed;
    return path.extension() == ".json" && fs::is_regular_file(path, failed);
}

bool names(const fs::path& path, const char* extension) {
    std::error_code failed;
    return path.extension() == extension && fs::is_regular_file(path, failed);
}

fs::path folder_of(const fs::path& path) {
    std::error_code failed;
    return fs::is_directory(path, failed) ? path : path.parent_path();
}

}  // namespace

std::vector<fs::path> tokenizer_files(const fs::path& path) {
    if (names_tokenizer(path) || names(path, ".model") || names(path, ".tiktoken") ||
        path.extension() == ".gguf")
        return {path};
    std::vector<fs::path> found;
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "config.json", "vocab.txt", "vocab.json",
          "merges.txt", "added_tokens.json", "special_tokens_map.json", "tokenizer.model"}) {
        std::error_code failed;
        if (fs::is_regular_file(folder_of(path) / name, failed))
            found.push_back(folder_of(path) / name);
    }
    return found;
}

Tokenizer parse_tokenizer(std::string_view text, std::string_view source) {
    const std::string name(source);
    return Tokenizer(
        tokenizer::read_tokenizer_json(Json::parse(text, source, longest_vocabulary), name));
}

Tokenizer open_tokenizer(const fs::path& path) {
    if (names(path, ".model"))
        return Tokenizer(tokenizer::read_sentence_model(path, Json(), Json(), true));
    if (names(path, ".tiktoken")) return Tokenizer(tokenizer::read_tiktoken(path));
    const bool is_file = names_tokenizer(path);
    const fs::path folder = folder_of(path);
    std::error_code failed;
    const fs::path file = is_file ? path : folder / "tokenizer.json";
    if (is_file || fs::exists(file, failed)) {
        const std::string text = file_text(file, "a tokenizer.json", longest_vocabulary);
        const Json json = Json::parse(text, file.string(), longest_vocabulary);
        auto parts = tokenizer::read_tokenizer_json(json, file.string());
        if (!is_file) {
            tokenizer::add_declared_tokens(folder, *parts, tokenizer::Missing::appended);
            tokenizer::require_agreement(folder, *parts);
            tokenizer::note_class(folder, *parts);
            tokenizer::note_other_vocabulary(folder, json, *parts);
            tokenizer::note_other_names(folder, *parts);
            tokenizer::require_same_flags(folder, json);
        }
        parts->notes.push_back(fmt::format("{} {}", file.filename().string(), sha256(text)));
        return Tokenizer(std::move(parts));
    }
    if (auto parts = tokenizer::read_vocabulary_files(folder)) return Tokenizer(std::move(parts));
    throw FormatError(
        fmt::format("{}: has no tokenizer.json, vocab.txt, vocab.json with merges.txt, or "
                    "tokenizer.model; name one with --tokenizer FILE, or pass ids with --input "
                    "ids:FILE.",
                    path.string()));
}

}  // namespace tsdiag
