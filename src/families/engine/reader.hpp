#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "names.hpp"

namespace tsdiag::families {

using Words = std::initializer_list<std::string_view>;

/// Reads a file and its config while a family writes the spec.  Values missing from the config take
/// defaults and are noted; a value that contradicts the shapes is an error that names both; a key
/// that nothing reads is an error, too, unless it is known to be harmless.
class Reader {
  public:
    Reader(const Checkpoint& file, const DetectOptions& options, std::string_view family);

    ModelSpec spec;

    /// Finds the prefix of the family's names.  `anchor`: a name that all its files have once.
    void find_prefix(std::string_view anchor);
    const std::string& prefix() const { return prefix_; }
    bool has(const std::string& name) const;
    /// Extent `axis` of the tensor's shape; negative axes count from the last.  Throws
    /// `FormatError` where there is no such tensor or axis.
    Index extent(const std::string& name, int axis) const;
    std::size_t rank(const std::string& name) const;
    bool empty(const std::string& name) const;  ///< has no element
    /// Number of layers `before` + N + '.'.  Throws `FormatError` where one is missing.
    Index layers(const std::string& before) const;

    /// Replaces the config by hyper-parameters saved in the file.  `script`: all arguments of a
    /// training script, of which only some concern the model.
    void use_config(Json config, std::string source, bool script);
    /// Another source of the config, which must not contradict the one in use.
    void also_said(Json config, std::string source);
    const Json& config() const { return config_; }
    const std::string& config_source() const { return config_source_; }
    /// Whether the config names the family; its defaults are then those of the family's own code.
    bool has_model_type() const { return has_model_type_; }
    /// The config's value under `keys`, synonyms; null: absent.
    const Json& value(Words keys) const;
    /// Requires `value` under these keys: with any other the model computes something else.
    void only(Words keys, const Json& value) const;
    /// Whether `tensor` exists; the config, where it tells, must agree.  `left_out`: a config that
    /// names the family but lacks the key means that there is none, and a tensor that is there is
    /// refused.
    bool part(Words keys, const std::string& tensor, bool left_out = false) const;
    /// A size known from shapes; the config, where it tells, must agree.
    Index agreed(Words keys, Index in_file, std::string_view tensor) const;
    Index count(Words keys, Index fallback);
    double number(Words keys, double fallback);
    bool flag(Words keys, bool fallback);
    /// As `flag`, where the config tells; another type than true or false is refused.
    std::optional<bool> switch_said(Words keys) const;
    std::string word(Words keys, std::string_view fallback);
    Unary activation(Words keys, std::string_view fallback);
    /// --n-heads, else the config.  Throws `UsageError` where neither tells, or heads do not divide
    /// `inner`, the rows of the query projection named `tensor`.
    Index heads(Words keys, Index inner, std::string_view tensor);
    void took(std::string line) { spec.provenance.defaults.push_back(std::move(line)); }
    /// An unknown value: a warning where the config does not even name the family.
    void assume(std::string line);
    void saw(std::string line) { spec.provenance.recognised.push_back(std::move(line)); }
    [[noreturn]] void refuse(const std::string& what) const;  ///< `FormatError` naming the file
    [[noreturn]] void ask(const std::string& what) const;     ///< `UsageError` naming the file

    /// The architecture, after checking that every tensor is there and has its shape, and that
    /// nothing is left over: no tensor whose name after the prefix starts with one of `own`, except
    /// the patterns `unused` of heads and buffers and those of known.hpp, and no key of the config.
    /// Tensors elsewhere: heads are listed in the spec.
    Architecture finish(Names names, Words unused, Words own = {""});
    /// BERT's old names: `gamma` for weight, `beta` for bias.
    void accept_gamma_beta(Names& names) const;

  private:
    [[noreturn]] void wrong(std::string_view key, std::string_view expected) const;
    /// `fallback`, in place of keys that are asked for.
    template <class T>
    T assumed(Words keys, T fallback);
    void check_tensors(const Names& names) const;
    void check_leftovers(const Names& names, const Names& head, Words unused, Words own);
    Names read_head(const Names& names);
    void check_frequencies(const std::string& name) const;
    void check_keys();
    void check_sources();
    void check_told_sizes() const;
    void warn_of_assumptions();
    void apply_own_keys();
    void add_learned(Names& names);
    void add_step_parameters(Names& names);
    void read_steps(const std::string& text, BlockSpec& block) const;
    Draws read_draws(const Json& said) const;
    void require_known_keys(const Json& said, bool of_layer) const;

    const Checkpoint& file_;
    const DetectOptions& options_;
    Json config_;
    std::string config_source_;
    bool has_model_type_ = false, script_ = false;
    mutable std::set<std::string, std::less<>> asked_;  ///< keys of the config
    /// Keys of the config that were asked for, synonyms together, and whether the default was
    /// taken.
    mutable std::map<std::vector<std::string>, bool> questions_;
    std::vector<std::pair<std::string, Json>> other_sources_;
    std::vector<std::string> assumed_;
    std::string prefix_;
};

/// "BERT, 12 layers, d = 768, 12 heads".
std::string describe(const ModelSpec& spec);
/// Sizes, norms, activation, scale, positions of the model, one line each.
std::vector<std::string> rules(const ModelSpec& spec);

}  // namespace tsdiag::families
