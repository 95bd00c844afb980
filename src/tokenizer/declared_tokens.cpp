#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// Tokens that files beside a vocabulary add to it, as `save_pretrained` of Transformers writes
/// them.
namespace tsdiag::tokenizer {
namespace {

namespace fs = std::filesystem;

struct Declared {
    std::string content;
    std::optional<Id> id = {};
    const char* file = "";  ///< that has it
    bool special = false;
    std::optional<bool> normalised = {}, single_word = {}, left_strip = {}, right_strip = {};
};

[[noreturn]] void refuse(const std::string& source, const std::string& what) {
    throw FormatError(fmt::format(
        "{}: {}; name a tokenizer.json with --tokenizer FILE, or pass ids with --input ids:FILE.",
        source, what));
}

std::string shown(const std::string& content) { return visible(shortened(content, 60)); }

/// In the order in which Transformers adds them: by their ids, then by their roles.
class Declarations {
  public:
    explicit Declarations(const fs::path& folder) : folder_(folder) {
        const Json config = json_beside(folder, config_file),
                   map = json_beside(folder, "special_tokens_map.json");
        const Json& divided = config["split_special_tokens"];
        if (!divided.is_null() && !(divided.is_bool() && !divided.boolean()))
            refuse((folder / config_file).string(),
                   fmt::format("split_special_tokens is {}, which is not supported",
                               shown(divided.dump())));
        by_id(config["added_tokens_decoder"]);
        by_content(json_beside(folder, "added_tokens.json"));
        std::ranges::stable_sort(all_, {}, &Declared::id);
        for (std::size_t i = 0; i < all_.size(); ++i) index_[all_[i].content] = i;
        for (const char* key :
             {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token",
              "mask_token", "additional_special_tokens", "extra_special_tokens"}) {
            by_role(map[key], key, "special_tokens_map.json");
            by_role(config[key], key, config_file);
        }
    }
    const std::vector<Declared>& all() const { return all_; }

  private:
    static constexpr const char* config_file = "tokenizer_config.json";

    Declared& of(const std::string& content, const char* file) {
        const auto [at, fresh] = index_.emplace(content, all_.size());
        if (fresh) {
            all_.emplace_back();
            all_.back().content = content;
            all_.back().file = file;
        }
        return all_[at->second];
    }
    void set_id(Declared& one, Id id, const char* file) {
        if (one.id && *one.id != id)
            refuse((folder_ / file).string(),
                   fmt::format("'{}' has the ids {} and {}", shown(one.content), *one.id, id));
        one.id = id;
    }
    static void properties(Declared& one, const Json& said) {
        const auto flag = [&](const char* key, std::optional<bool>& out) {
            if (said[key].is_bool()) out = said[key].boolean();
        };
        one.special = one.special || (said["special"].is_bool() && said["special"].boolean());
        flag("normalized", one.normalised);
        flag("single_word", one.single_word);
        flag("lstrip", one.left_strip);
        flag("rstrip", one.right_strip);
    }
    void by_id(const Json& decoder) {
        if (!decoder.is_object()) return;
        for (const auto& [key, said] : decoder.object()) {
            Id id = none;
            const char* end = key.data() + key.size();
            const auto read = std::from_chars(key.data(), end, id);
            if (read.ec != std::errc() || read.ptr != end || id < 0 || id > largest_id ||
                !said["content"].is_string())
                refuse((folder_ / config_file).string(),
                       fmt::format("added_tokens_decoder has '{}' that is no token with an id",
                                   shown(key)));
            Declared& one = of(said["content"].string(), config_file);
            set_id(one, id, config_file);
            properties(one, said);
        }
    }
    void by_content(const Json& added) {
        if (!added.is_object()) return;
        for (const auto& [content, id] : added.object()) {
            if (!id.is_integer() || id.integer() < 0 || id.integer() > largest_id)
                refuse((folder_ / "added_tokens.json").string(),
                       fmt::format("the id of '{}' is no id", shown(content)));
            set_id(of(content, "added_tokens.json"), id.integer(), "added_tokens.json");
        }
    }
    /// A token, or a list of tokens, or an object of their roles.
    void by_role(const Json& said, std::string_view key, const char* file) {
        const bool several = key.ends_with("s");
        if (!several) return special(said, file);
        if (said.is_array())
            for (const Json& one : said.array()) special(one, file);
        if (said.is_object())
            for (const auto& [role, one] : said.object()) special(one, file);
    }
    void special(const Json& said, const char* file) {
        const Json& content = said.is_object() ? said["content"] : said;
        if (!content.is_string() || content.string().empty()) return;
        const bool known = index_.contains(content.string());
        Declared& one = of(content.string(), file);
        one.special = true;
        if (!known && said.is_object()) properties(one, said);
    }

    fs::path folder_;
    std::vector<Declared> all_;
    std::map<std::string, std::size_t> index_;
};

/// Adds what is declared to a tokenizer.
class Addition {
  public:
    Addition(const fs::path& folder, Parts& parts, Missing missing,
             std::unordered_map<std::string, Id> own)
        : folder_(folder), parts_(parts), missing_(missing), own_(std::move(own)) {
        for (const auto& [id, content] : parts.added) {
            own_[content] = id;
            next_ = std::max(next_, id + 1);
        }
        const Vocabulary& vocabulary = parts.model->vocabulary;
        parts.size = std::max(parts.size, vocabulary.size());
        // As the tokenizers library counts; beside a vocabulary behind all ids.
        next_ = std::max(next_, missing == Missing::appended ? Id(vocabulary.count()) : parts.size);
        for (const AddedToken& token : parts.raw.all()) found_[token.id] = {token, false};
        for (const AddedToken& token : parts.normalised.all()) found_[token.id] = {token, true};
    }
    void add(const Declared& one) {
        const Id id = id_of(one);
        parts_.size = std::max(parts_.size, id + 1);
        if (one.special)
            parts_.ordinary.erase(id);
        else if (!parts_.added.contains(id))
            parts_.ordinary.insert(id);
        if (const auto found = found_.find(id); found != found_.end())
            return change(one, found->second.token, found->second.normalised);
        parts_.added[id] = one.content;
        AddedToken token{one.content, id};
        token.single_word = one.single_word.value_or(false);
        token.left_strip = one.left_strip.value_or(false);
        token.right_strip = one.right_strip.value_or(false);
        const bool normal = one.normalised.value_or(!one.special) &&
                            (!one.special || missing_ == Missing::appended);
        if (normal && parts_.normalizer) parts_.normalizer(token.content, limits_);
        (normal ? parts_.normalised : parts_.raw).add(std::move(token));
    }

  private:
    struct Found {
        AddedToken token;
        bool normalised = false;
    };

    const char* tokenizer() const {
        return missing_ == Missing::appended  ? "tokenizer.json"
               : missing_ == Missing::refused ? "tokenizer.model"
                                              : "the vocabulary";
    }
    Id id_of(const Declared& one) {
        const auto added = own_.find(one.content);
        const Id known =
            added != own_.end() ? added->second : parts_.model->vocabulary.find(one.content);
        const auto require = [&](Id right, const char* what) {
            if (one.id && *one.id != right)
                refuse(folder_.string(),
                       fmt::format("'{}' has the id {} in {}, but {}{} in {}", shown(one.content),
                                   *one.id, one.file, what, right, tokenizer()));
        };
        if (known != none) {
            require(known, "");
            return known;
        }
        if (missing_ == Missing::refused)
            refuse(folder_.string(), fmt::format("{} has the token '{}', which is not in {}",
                                                 one.file, shown(one.content), tokenizer()));
        if (missing_ == Missing::appended) require(next_, "the next one is ");
        const Id id = one.id ? *one.id : next_;
        const auto taken = parts_.added.find(id);
        const std::string other =
            taken != parts_.added.end() ? taken->second : parts_.model->vocabulary.token(id);
        if (!other.empty())
            refuse(folder_.string(), fmt::format("'{}' and '{}' have the id {}", shown(one.content),
                                                 shown(other), id));
        require(next_, "the next one is ");  // fast tokenizers of Transformers give it another
        next_ = std::max(next_, id + 1);
        return id;
    }
    /// Of one that the tokenizer has.
    void change(const Declared& one, AddedToken token, bool normalised) {
        bool changed = false;
        const auto set = [&](const std::optional<bool>& said, bool& has, const char* key) {
            if (!said || *said == has) return;
            if (missing_ == Missing::appended)
                refuse(folder_.string(),
                       fmt::format("{} of '{}' is {} in {}, but {} in tokenizer.json", key,
                                   shown(one.content), *said, one.file, has));
            has = *said;
            changed = true;
        };
        set(one.single_word, token.single_word, "single_word");
        set(one.left_strip, token.left_strip, "lstrip");
        set(one.right_strip, token.right_strip, "rstrip");
        if (changed) (normalised ? parts_.normalised : parts_.raw).add(std::move(token));
    }

    const fs::path& folder_;
    Parts& parts_;
    Missing missing_;
    std::unordered_map<std::string, Id> own_;  ///< ids of tokens that are found in a text
    std::unordered_map<Id, Found> found_;
    Id next_ = 0;
    Limits limits_{1 << 20};
};

}  // namespace

DeclaredNames::DeclaredNames(fs::path folder) : folder_(std::move(folder)) {
    for (const char* file : {"tokenizer_config.json", "special_tokens_map.json"})
        files_.emplace_back(file, json_beside(folder_, file));
}

std::string DeclaredNames::of(const char* key, const std::string& otherwise) const {
    std::optional<std::string> name;
    for (const auto& [file, json] : files_) {
        const Json& said = json[key].is_object() ? json[key]["content"] : json[key];
        if (!said.is_string()) continue;
        // Which of them is obeyed depends on the version of Transformers.
        if (name && *name != said.string())
            refuse(folder_.string(),
                   fmt::format("{} is '{}' in tokenizer_config.json, but '{}' in {}", key,
                               shown(*name), shown(said.string()), file));
        name = said.string();
    }
    return name.value_or(otherwise);
}

void add_declared_tokens(const fs::path& folder, Parts& parts, Missing missing,
                         std::unordered_map<std::string, Id> own) {
    const Declarations declared(folder);
    Addition addition(folder, parts, missing, std::move(own));
    for (const Declared& one : declared.all()) addition.add(one);
    parts.raw.finish();
    parts.normalised.finish();
}

}  // namespace tsdiag::tokenizer
