#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "models.hpp"
#include "parts.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"

/// What BERT, GPT-2 and RoBERTa had before tokenizer.json: vocab.txt; vocab.json and merges.txt;
/// and what LLaMA and Gemma have, tokenizer.model.
namespace tsdiag::tokenizer {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& file) {
    std::error_code failed;
    return fs::exists(file, failed);
}

/// Keys of a tokenizer_config.json that do not decide the ids of one text.
constexpr std::array<std::string_view, 32> without_effect{
    "model_max_length", "tokenizer_class", "name_or_path", "special_tokens_map_file",
    "tokenizer_file", "clean_up_tokenization_spaces", "padding_side", "truncation_side",
    "model_input_names", "errors", "use_fast", "max_len", "init_inputs", "processor_class",
    "chat_template", "auto_map", "trust_remote_code", "spaces_between_special_tokens",
    // Of calls, and of where the files are.
    "max_length", "stride", "truncation_strategy", "truncation", "padding", "pad_to_multiple_of",
    "pad_token_type_id", "return_token_type_ids", "trim_offsets", "full_tokenizer_file", "backend",
    "is_local", "local_files_only", "padding_strategy"};
/// Those that `Declarations` reads.
constexpr std::array<std::string_view, 10> of_tokens{
    "added_tokens_decoder", "additional_special_tokens", "extra_special_tokens",
    // One each.
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

/// Throws `FormatError` for a key that is neither of these nor one of `read`, unless it is null or
/// false.
void require_known_keys(const Json& config, const fs::path& folder,
                        std::initializer_list<std::string_view> read) {
    if (!config.is_object()) return;
    const auto in = [](const auto& list, std::string_view key) {
        return std::find(list.begin(), list.end(), key) != list.end();
    };
    for (const auto& [key, value] : config.object())
        if (!value.is_null() && !(value.is_bool() && !value.boolean()) &&
            !in(without_effect, key) && !in(of_tokens, key) && !in(read, key))
            throw FormatError(fmt::format(
                "{}: has a '{}', which is not supported beside a vocabulary; name a tokenizer.json "
                "with --tokenizer FILE, or pass ids with --input ids:FILE.",
                (folder / "tokenizer_config.json").string(), visible(shortened(key, 60))));
}

std::string text_of(const fs::path& file, Parts& parts) {
    std::string text = file_text(file, "a vocabulary", longest_vocabulary);
    parts.notes.push_back(fmt::format("{} {}", file.filename().string(), sha256(text)));
    return text;
}

/// A token as it is written in a text.
std::string text_of(Id id, const Parts& parts) {
    const auto added = parts.added.find(id);
    return added != parts.added.end() ? added->second : parts.model->vocabulary.token(id);
}

std::vector<std::string> lines_of(std::string text) {
    std::vector<std::string> lines = split(text, '\n');
    if (lines.back().empty()) lines.pop_back();
    for (std::string& line : lines)
        if (line.ends_with('\r')) line.pop_back();
    return lines;
}

bool is_special(const std::string& token) {
    return token.size() > 2 && token.front() == '[' && token.back() == ']';
}

Id required(const Parts& parts, std::string_view token, const fs::path& file) {
    const Id id = parts.model->vocabulary.find(token);
    if (id == none)
        throw FormatError(
            fmt::format("{}: has no {}, which this model needs; name a tokenizer "
                        "with --tokenizer FILE.",
                        file.string(), token));
    return id;
}

void add_special(Parts& parts, std::string_view token) {
    const Id id = parts.model->vocabulary.find(token);
    if (id == none || parts.added.contains(id)) return;
    AddedToken added;
    added.content = token;
    added.id = id;
    parts.added[id] = added.content;
    parts.raw.add(std::move(added));
}

/// Is everything in the vocabulary but names in brackets in lower case?
bool is_uncased(const Vocabulary& vocabulary) {
    bool lower = true;
    vocabulary.each([&](std::string_view token, Id) {
        if (is_special(std::string(token))) return;
        for (const char c : token) lower = lower && !(c >= 'A' && c <= 'Z');
    });
    return lower;
}

struct SaidClass {
    std::string name;  ///< "Bert" of BertTokenizer or BertTokenizerFast
    std::string file;
};

/// The tokenizer_class of tokenizer_config.json or, where it has none, of config.json, as
/// Transformers looks for it; empty: none is said, or one that takes any tokenizer.
SaidClass class_said(const fs::path& folder) {
    for (const char* file : {"tokenizer_config.json", "config.json"}) {
        const Json config = json_beside(folder, file);
        if (!config.is_object() || !config["tokenizer_class"].is_string()) continue;
        std::string name = config["tokenizer_class"].string();
        for (const std::string_view end : {"Fast", "Tokenizer"})
            if (name.ends_with(end)) name.resize(name.size() - end.size());
        return {name == "PreTrained" ? std::string() : name, (folder / file).string()};
    }
    return {};
}

[[noreturn]] void refuse_class(const SaidClass& said, std::string_view files) {
    throw FormatError(fmt::format(
        "{}: tokenizer_class is {}Tokenizer, but beside it there is only {}, which is read as "
        "another class does; name a tokenizer.json with --tokenizer FILE, or pass ids with --input "
        "ids:FILE.",
        said.file, visible(shortened(said.name, 60)), files));
}

/// Classes of Transformers that read vocab.txt as BERT's does.
constexpr std::array<std::string_view, 14> like_bert{
    "Bert",     "DistilBert", "Electra",   "MobileBert",        "ConvBert",
    "Lxmert",   "LayoutLM",   "Realm",     "SqueezeBert",       "RetriBert",
    "Splinter", "DPR",        "DPRReader", "DPRQuestionEncoder"};

std::shared_ptr<Parts> read_bert(const fs::path& folder) {
    const fs::path file = folder / "vocab.txt";
    if (const SaidClass said = class_said(folder);
        !said.name.empty() && std::ranges::find(like_bert, said.name) == like_bert.end())
        refuse_class(said, "vocab.txt");
    auto parts = std::make_shared<Parts>();
    auto model = std::make_unique<WordPiece>();
    Id id = 0;
    for (const std::string& line : lines_of(text_of(file, *parts)))
        model->vocabulary.add(line, id++, file.string());
    const DeclaredNames declared(folder);
    model->unknown = declared.of("unk_token", "[UNK]");
    model->continuing_prefix = "##";
    model->kind = "WordPiece";
    model->source = file.string();
    model->finish();
    const bool looks_uncased = is_uncased(model->vocabulary);
    parts->model = std::move(model);
    const Json json = json_beside(folder, "tokenizer_config.json");
    const Component config(json, (folder / "tokenizer_config.json").string());
    require_known_keys(json, folder,
                       {"do_lower_case", "do_basic_tokenize", "tokenize_chinese_chars",
                        "strip_accents", "never_split", "do_split_on_punc"});
    // Those that only one of Transformers' two tokenizers obeys.
    if (json["never_split"].is_array() && !json["never_split"].array().empty())
        config.refuse_value("never_split");
    if (json["do_split_on_punc"].is_bool() && !json["do_split_on_punc"].boolean())
        config.refuse_value("do_split_on_punc");
    const bool given = json.is_object() && !json["do_lower_case"].is_null();
    const bool lower = given ? config.flag("do_lower_case", true) : looks_uncased;
    if (!given)
        parts->notes.push_back(lower ? "in lower case, as the vocabulary is"
                                     : "not in lower case: the vocabulary has capitals");
    if (!given && !lower)
        parts->assumption = fmt::format(
            "The text is not put in lower case, since {} has capitals, though Transformers does "
            "that where no do_lower_case is said; say it in a tokenizer_config.json",
            file.string());
    if (json.is_object() && !config.flag("do_basic_tokenize", true))
        config.refuse_value("do_basic_tokenize");
    const bool chinese = !json.is_object() || config.flag("tokenize_chinese_chars", true);
    const bool accents = json.is_object() ? config.flag("strip_accents", lower) : lower;
    parts->normalizer = bert_normalizer(true, chinese, accents, lower);
    parts->pre_tokenizer = bert_words();
    const std::string first = declared.of("cls_token", "[CLS]"),
                      last = declared.of("sep_token", "[SEP]"),
                      unknown = declared.of("unk_token", "[UNK]");
    for (const std::string& token : {declared.of("pad_token", "[PAD]"), unknown, first, last,
                                     declared.of("mask_token", "[MASK]")})
        add_special(*parts, token);
    parts->before = {required(*parts, first, file)};
    parts->after = {required(*parts, last, file)};
    required(*parts, unknown, file);
    return parts;
}

/// The lines of a merges.txt behind its first, which must be '#version ...': Transformers skips the
/// first line and what is behind the last newline, whatever they are; other libraries do not.
std::vector<std::string> merges_of(const fs::path& file, std::string text) {
    constexpr std::string_view version = "#version";
    if (!text.starts_with(version))
        throw FormatError(fmt::format(
            "{}: begins with '{}', expected '#version: 0.2', for Transformers skips the first line "
            "and would lose a merge there; put that line before it.",
            file.string(), visible(shortened(text.substr(0, text.find('\n')), 60))));
    if (!text.ends_with('\n'))
        throw FormatError(fmt::format(
            "{}: ends with '{}' and without a newline, where Transformers loses the last merge; "
            "put a newline behind it.",
            file.string(), visible(shortened(text.substr(text.rfind('\n') + 1), 60))));
    std::vector<std::string> lines = lines_of(std::move(text));
    lines.erase(lines.begin());
    return lines;
}

std::shared_ptr<Parts> read_gpt2(const fs::path& folder) {
    const fs::path vocab = folder / "vocab.json", merges = folder / "merges.txt";
    auto parts = std::make_shared<Parts>();
    auto model = std::make_unique<Bpe>();
    const Json json = Json::parse(text_of(vocab, *parts), vocab.string(), longest_vocabulary);
    if (!json.is_object())
        throw FormatError(fmt::format("{}: expected an object of tokens.", vocab.string()));
    for (const auto& [token, id] : json.object()) {
        if (!id.is_integer())
            throw FormatError(fmt::format("{}: the id of '{}' is no integer.", vocab.string(),
                                          visible(shortened(token, 60))));
        model->vocabulary.add(token, id.integer(), vocab.string());
    }
    std::int64_t rank = 0;
    for (const std::string& line : merges_of(merges, text_of(merges, *parts))) {
        if (line.empty()) continue;
        const std::vector<std::string> two = split(line, ' ');
        if (two.size() != 2)
            throw FormatError(fmt::format("{}: merge {} is '{}', expected two tokens.",
                                          merges.string(), rank, visible(shortened(line, 60))));
        model->add_merge(two[0], two[1], rank++, merges.string());
    }
    model->kind = "BPE";
    model->source = vocab.string();
    model->finish();
    parts->model = std::move(model);
    parts->byte_level = true;
    const Json config = json_beside(folder, "tokenizer_config.json");
    require_known_keys(config, folder, {"add_prefix_space", "add_bos_token", "add_eos_token"});
    const bool prefix = config.is_object() &&
                        Component(config, "tokenizer_config.json").flag("add_prefix_space", false);
    parts->pre_tokenizer = byte_level_words(prefix, true);
    const Json model_config = json_beside(folder, "config.json");
    std::string family = model_config.is_object() && model_config["model_type"].is_string()
                             ? model_config["model_type"].string()
                             : "";
    // Transformers takes the class that is said before that of the model.
    if (const SaidClass said = class_said(folder); !said.name.empty()) {
        const std::string own = said.name == "GPT2"      ? "gpt2"
                                : said.name == "Roberta" ? "roberta"
                                                         : "";
        if (own.empty()) refuse_class(said, "vocab.json with merges.txt");
        if (own != family)
            parts->notes.push_back(
                fmt::format("as tokenizer_class {}Tokenizer says, though the model is '{}'",
                            said.name, family));
        family = own;
    }
    if (family == "roberta") {
        for (const char* token : {"<s>", "</s>", "<pad>", "<unk>"}) add_special(*parts, token);
        AddedToken mask;
        mask.content = "<mask>";
        mask.id = required(*parts, "<mask>", vocab);
        mask.left_strip = true;
        parts->added[mask.id] = mask.content;
        parts->raw.add(std::move(mask));
        parts->before = {required(*parts, "<s>", vocab)};
        parts->after = {required(*parts, "</s>", vocab)};
    } else if (family == "gpt2") {
        add_special(*parts, "<|endoftext|>");
    } else {
        throw FormatError(fmt::format(
            "{}: the special tokens of vocab.json and merges.txt are known for gpt2 and "
            "roberta, but config.json says '{}'; name a tokenizer.json with --tokenizer "
            "FILE, or pass ids with --input ids:FILE.",
            folder.string(), visible(family)));
    }
    return parts;
}

using Ids = std::vector<std::pair<std::string, std::int64_t>>;

Ids words_of(const fs::path& file) {
    Ids out;
    for (std::string& line : lines_of(file_text(file, "a vocabulary", longest_vocabulary)))
        out.emplace_back(std::move(line), std::ssize(out));
    return out;
}

Ids ids_of(const fs::path& file) {
    Ids out;
    const std::string text = file_text(file, "a vocabulary", longest_vocabulary);
    const Json json = Json::parse(text, file.string(), longest_vocabulary);
    if (json.is_object())
        for (const auto& [token, id] : json.object())
            if (id.is_integer()) out.emplace_back(token, id.integer());
    return out;
}

/// "vocab.txt gives 'a' the id 5, which has 4 in it": the first token of `file` with another id
/// than in `vocabulary`, that of a tokenizer.json, and how many more there are; empty: there is
/// none.
std::string other_ids(const Ids& ids, const Json& vocabulary, const fs::path& file) {
    if (!vocabulary.is_object()) return {};
    // Of a token that is there twice the later id counts.
    std::unordered_map<std::string_view, std::int64_t> last;
    for (const auto& [token, id] : ids) last[token] = id;
    std::string first;
    int more = -1;
    for (const auto& [token, id] : vocabulary.object()) {
        const auto other = last.find(token);
        if (other == last.end() || !id.is_integer() || other->second == id.integer()) continue;
        if (++more == 0)
            first =
                fmt::format("{} gives '{}' the id {}, which has {} in it", file.filename().string(),
                            visible(shortened(token, 60)), other->second, id.integer());
    }
    return first + (more > 0 ? fmt::format(" (and {} more)", more) : "");
}

/// "merge 0 of merges.txt is 'b a', and 'a b' in it": the first one that differs from those of a
/// tokenizer.json, or how many there are; empty: there is none.
std::string other_merge(const fs::path& file, const Json& merges) {
    if (!merges.is_array()) return {};
    std::vector<std::string> lines =
        lines_of(file_text(file, "a list of merges", longest_vocabulary));
    if (!lines.empty() && lines.front().starts_with("#version")) lines.erase(lines.begin());
    std::erase(lines, "");
    const Json::Array& own = merges.array();
    for (std::size_t i = 0; i < std::min(lines.size(), own.size()); ++i) {
        std::string pair = own[i].is_string() ? own[i].string() : "";
        if (own[i].is_array() && own[i].array().size() == 2)
            pair = own[i].array()[0].string() + ' ' + own[i].array()[1].string();
        if (lines[i] != pair)
            return fmt::format("merge {} of {} is '{}', and '{}' in it", i,
                               file.filename().string(), visible(shortened(lines[i], 60)),
                               visible(shortened(pair, 60)));
    }
    if (lines.size() == own.size()) return {};
    return fmt::format("{} has {} merges, and it has {}", file.filename().string(), lines.size(),
                       own.size());
}

/// Meta's own folders have params.json in place of a config.json.
Json config_of(const fs::path& folder) {
    Json config = json_beside(folder, "config.json");
    if (config.is_null() && is_there(folder / "params.json")) config.set("model_type", "llama");
    return config;
}

}  // namespace

void require_agreement(const fs::path& folder, const Parts& parts) {
    const Json json = json_beside(folder, "tokenizer_config.json");
    if (!json.is_object()) return;
    const std::string source = (folder / "tokenizer_config.json").string();
    const auto require = [&](const char* key, const char* name, const std::vector<Id>& around) {
        if (json[key].is_null()) return;
        const bool wanted = Component(json, source).flag(key, false);
        const Json& token = json[name].is_object() ? json[name]["content"] : json[name];
        const std::string content = token.is_string() ? token.string() : "";
        const bool put =
            std::ranges::any_of(around, [&](Id id) { return content == text_of(id, parts); });
        if (put == wanted) return;
        throw FormatError(fmt::format(
            "{}: {} is {}, but {} {} '{}' around a text; name the file that is right with "
            "--tokenizer FILE, or pass ids with --input ids:FILE.",
            source, key, wanted, parts.source.empty() ? "the tokenizer" : parts.source,
            put ? "puts" : "does not put", visible(shortened(content, 60))));
    };
    require("add_bos_token", "bos_token", parts.before);
    require("add_eos_token", "eos_token", parts.after);
}

void note_class(const fs::path& folder, Parts& parts) {
    const std::string said = class_said(folder).name;
    const bool bert = std::ranges::find(like_bert, said) != like_bert.end();
    const bool other = said == "GPT2" || said == "Roberta" || said == "Llama" || said == "Gemma";
    if (parts.model->kind == "WordPiece" ? other : bert)
        parts.notes.push_back(
            fmt::format("tokenizer.json is followed, a {}, though tokenizer_class is {}Tokenizer",
                        parts.model->kind, said));
}

void note_other_names(const fs::path& folder, Parts& parts) {
    const Json json = json_beside(folder, "tokenizer_config.json");
    if (!json.is_object() || !parts.assumption.empty()) return;
    const auto named = [&](const char* key) {
        const Json& token = json[key].is_object() ? json[key]["content"] : json[key];
        return token.is_string() ? token.string() : std::string();
    };
    const auto compare = [&](std::array<const char*, 2> keys, const std::vector<Id>& around) {
        std::string said;
        // Embeddings of Qwen end with what is their padding.
        for (const char* key : {keys[0], keys[1], "pad_token"}) {
            const std::string token = named(key);
            if (token.empty()) continue;
            if (std::ranges::any_of(around, [&](Id id) { return token == text_of(id, parts); }))
                return;
            if (said.empty() && key != std::string_view("pad_token"))
                said = fmt::format("{} of tokenizer_config.json is '{}'", key,
                                   visible(shortened(token, 60)));
        }
        if (said.empty() || around.empty() || !parts.assumption.empty()) return;
        parts.assumption = fmt::format(
            "tokenizer.json is followed, which puts '{}' around a text, though {}; classes of "
            "Transformers differ on which counts",
            visible(shortened(text_of(around.front(), parts), 60)), said);
    };
    compare({"cls_token", "bos_token"}, parts.before);
    compare({"sep_token", "eos_token"}, parts.after);
}

void note_other_vocabulary(const fs::path& folder, const Json& json, Parts& parts) {
    const Json& model = json["model"];
    const fs::path words = folder / "vocab.txt", ids = folder / "vocab.json",
                   merges = folder / "merges.txt";
    const auto compared = [](const fs::path& file, const auto& compare) -> std::string {
        try {
            return compare(file);
        } catch (const Error&) {  // it is not needed
            return fmt::format("{} cannot be read", file.filename().string());
        }
    };
    const auto differs = [&](const auto& read) {
        return [&](const fs::path& file) { return other_ids(read(file), model["vocab"], file); };
    };
    std::string found;
    if (parts.model->kind == "WordPiece" && is_there(words))
        found = compared(words, differs(words_of));
    if (parts.model->kind == "BPE" && is_there(ids) && is_there(merges)) {
        found = compared(ids, differs(ids_of));
        if (found.empty())
            found = compared(
                merges, [&](const fs::path& file) { return other_merge(file, model["merges"]); });
    }
    if (!found.empty())
        parts.assumption = fmt::format(
            "tokenizer.json is followed, as by the fast tokenizers of Transformers, though {}; "
            "remove the file that is wrong",
            found);
}

std::shared_ptr<Parts> read_vocabulary_files(const fs::path& folder) {
    std::shared_ptr<Parts> parts;
    if (is_there(folder / "vocab.json") && is_there(folder / "merges.txt"))
        parts = read_gpt2(folder);
    else if (is_there(folder / "vocab.txt"))
        parts = read_bert(folder);
    if (parts) {
        add_declared_tokens(folder, *parts, Missing::added);
    } else if (is_there(folder / "tokenizer.model")) {
        const SaidClass said = class_said(folder);
        constexpr std::array<std::string_view, 4> known{"", "Llama", "CodeLlama", "Gemma"};
        if (std::ranges::find(known, said.name) == known.end())
            refuse_class(said, "tokenizer.model");
        parts = read_sentence_model(folder / "tokenizer.model", config_of(folder),
                                    json_beside(folder, "tokenizer_config.json"), false);
    } else {
        return nullptr;
    }
    parts->size = std::max(parts->size, parts->model->vocabulary.size());
    require_agreement(folder, *parts);
    return parts;
}

}  // namespace tsdiag::tokenizer
