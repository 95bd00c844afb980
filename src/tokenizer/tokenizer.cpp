#include "tsdiag/tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "parts.hpp"
#include "tsdiag/text.hpp"
#include "unicode.hpp"

namespace tsdiag {
namespace {

using namespace tokenizer;

/// The tokens of words that were divided before.
class Known {
  public:
    explicit Known(const Model& model, const Deadline& deadline)
        : model_(model), deadline_(deadline) {}

    void append(std::string_view word, std::vector<Id>& out) {
        constexpr std::size_t longest = 64, most = 1U << 20;
        if (word.size() > longest) return model_.append(word, deadline_, out);
        if (const auto found = places_.find(word); found != places_.end()) {
            const auto [begin, count] = found->second;
            out.insert(out.end(), ids_.begin() + std::ptrdiff_t(begin),
                       ids_.begin() + std::ptrdiff_t(begin + count));
            return;
        }
        const std::size_t before = out.size();
        model_.append(word, deadline_, out);
        if (places_.size() >= most) return;
        places_.emplace(word, std::pair(ids_.size(), out.size() - before));
        ids_.insert(ids_.end(), out.begin() + std::ptrdiff_t(before), out.end());
    }

  private:
    const Model& model_;
    const Deadline& deadline_;
    std::unordered_map<std::string, std::pair<std::size_t, std::size_t>, Vocabulary::Hash,
                       std::equal_to<>>
        places_;
    std::vector<Id> ids_;
};

/// Divides what is left between added tokens.
class Division {
  public:
    Division(const Parts& parts, std::string_view text)
        : parts_(parts), limits_(text.size()), known_(*parts.model, limits_.deadline) {
        limits_.growth.require(text.size());
        for (const AddedTokens::Part& part : parts.raw.divide(text, limits_.deadline))
            if (part.id != none)
                ids.push_back(part.id);
            else
                plain(text.substr(part.begin, part.end - part.begin), part.begin == 0);
    }
    std::vector<Id> ids;

  private:
    void plain(std::string_view text, bool first) {
        std::string own(text);
        const Normalizer& normalizer = first || !parts_.inside ? parts_.normalizer : parts_.inside;
        if (normalizer) normalizer(own, limits_);
        if (parts_.normalised.empty()) return words(own, first);
        for (const AddedTokens::Part& part : parts_.normalised.divide(own, limits_.deadline))
            if (part.id != none)
                ids.push_back(part.id);
            else
                words(std::string_view(own).substr(part.begin, part.end - part.begin),
                      first && part.begin == 0);
    }

    void words(std::string_view text, bool first) {
        if (text.empty()) return;
        Pieces pieces;
        pieces.limits = &limits_;
        pieces.list.push_back({text, first});
        if (parts_.pre_tokenizer) parts_.pre_tokenizer(pieces);
        for (const Pieces::Piece& piece : pieces.list)
            if (!piece.text.empty()) known_.append(piece.text, ids);
    }

    const Parts& parts_;
    Limits limits_;
    Known known_;
};

/// The byte of <0xHH>, or -1.
int fallen_byte(std::string_view piece) {
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
    int value = 0;
    for (const char c : piece.substr(3, 2)) {
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

/// Bytes that are no UTF-8 as \xHH, spaces as their mark, control characters spelled.
std::string readable(std::string_view bytes) {
    std::string out;
    for (std::size_t i = 0; i < bytes.size();) {
        const std::size_t length = utf8_length(bytes.substr(i, 4));
        const std::string_view one = bytes.substr(i, std::max<std::size_t>(length, 1));
        if (length == 0)
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[i]));
        else if (one == " ")
            out += space_mark;
        else if (is_control(one))
            out += spelled_control(one);
        else
            out += one;
        i += one.size();
    }
    return out;
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text) const {
    require_utf8(text, "The text");
    return std::move(Division(*parts_, text).ids);
}

std::span<const std::int64_t> Tokenizer::before() const { return parts_->before; }
std::span<const std::int64_t> Tokenizer::after() const { return parts_->after; }

std::vector<std::int64_t> Tokenizer::wrapped(std::span<const std::int64_t> ids) const {
    std::vector<std::int64_t> all = parts_->before;
    all.insert(all.end(), ids.begin(), ids.end());
    all.insert(all.end(), parts_->after.begin(), parts_->after.end());
    return all;
}

bool Tokenizer::special(std::int64_t id) const {
    return (parts_->added.contains(id) && !parts_->ordinary.contains(id)) ||
           std::ranges::find(parts_->before, id) != parts_->before.end() ||
           std::ranges::find(parts_->after, id) != parts_->after.end();
}

std::string Tokenizer::piece(std::int64_t id) const {
    const auto added = parts_->added.find(id);
    return added != parts_->added.end() ? added->second : parts_->model->vocabulary.token(id);
}

std::string Tokenizer::shown(std::int64_t id) const {
    const std::string own = piece(id);
    if (parts_->added.contains(id)) return readable(own);
    if (const int byte = fallen_byte(own); byte >= 0) return readable(std::string(1, char(byte)));
    return readable(parts_->byte_level ? bytes_of_characters(own) : own);
}

std::int64_t Tokenizer::size() const { return parts_->size; }
const std::string& Tokenizer::kind() const { return parts_->model->kind; }
const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }
const std::string& Tokenizer::assumption() const { return parts_->assumption; }

}  // namespace tsdiag
