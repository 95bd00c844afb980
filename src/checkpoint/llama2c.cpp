#include <fmt/format.h>

#include <cmath>

#include "layout.hpp"
#include "listed.hpp"
#include "looks_like.hpp"
#include "mapped_file.hpp"

/// Files of llama2.c: a LLaMA under Meta's names, in float32 (before version 1, and version 1) or
/// in groups of int8 with one scale each (version 2).
namespace tsdiag::checkpoint {
namespace {

constexpr std::string_view llama2c_magic = "24ka";
constexpr std::size_t llama2c_header = 256;  ///< since version 1
constexpr std::int64_t most_llama2c_layers = 1 << 12;

struct Llama2cSizes {
    std::int64_t width = 0, inner = 0, layers = 0, heads = 0, key_heads = 0, words = 0, tokens = 0;
    bool shared = false;     ///< the output matrix is the embedding
    std::int64_t group = 0;  ///< columns of one scale; 0: float32

    std::int64_t keys() const { return width / heads * key_heads; }
};

class Llama2cReader {
  public:
    explicit Llama2cReader(std::shared_ptr<const MappedFile> file)
        : file_(std::move(file)),
          in_(file_->bytes(), file_->path()),
          listed_(std::make_unique<ListedCheckpoint>("llama2.c", file_->path())) {}

    std::unique_ptr<Checkpoint> read() {
        const bool old = !starts_with(file_->bytes(), llama2c_magic);
        const std::int32_t version = old ? 0 : read_version();
        read_sizes(old);
        if (!old) read_flags(version);
        require_sizes();
        if (old)
            add_old();
        else
            add_new();
        if (in_.left() > 0) fail(fmt::format("has {} bytes more than its sizes take", in_.left()));
        Json arguments;
        arguments.set("dim", n_.width).set("hidden_dim", n_.inner).set("n_layers", n_.layers);
        arguments.set("n_heads", n_.heads).set("n_kv_heads", n_.key_heads);
        arguments.set("vocab_size", n_.words).set("max_seq_len", n_.tokens);
        // Constants of the program that runs these files.
        arguments.set("norm_eps", 1e-5).set("rope_theta", 10000.0);
        listed_->set_metadata(Json().set("model_args", std::move(arguments)));
        return std::move(listed_);
    }

  private:
    [[noreturn]] void fail(const std::string& found) const {
        refuse(file_->path(),
               fmt::format("looks like a llama2.c file, but {}. Is it complete? Export it again.",
                           found));
    }

    std::int32_t read_version() {
        in_.take_bytes(llama2c_magic.size());
        const auto version = in_.take<std::int32_t>();
        if (version != 1 && version != 2)
            fail(fmt::format("is of version {}, expected 1 or 2", version));
        return version;
    }

    void read_sizes(bool old) {
        for (std::int64_t* size :
             {&n_.width, &n_.inner, &n_.layers, &n_.heads, &n_.key_heads, &n_.words, &n_.tokens})
            *size = in_.take<std::int32_t>();
        if (!old) return;
        n_.shared = n_.words > 0;  // else the number is negative
        n_.words = std::abs(n_.words);
    }

    void read_flags(std::int32_t version) {
        const auto shared = in_.take<std::uint8_t>();
        if (shared > 1) fail(fmt::format("has {} in place of a truth value", shared));
        n_.shared = shared == 1;
        if (version == 2) {
            n_.group = in_.take<std::int32_t>();
            if (n_.group < 1) fail(fmt::format("has groups of {} weights", n_.group));
        }
        in_.take_bytes(llama2c_header - in_.position());
    }

    void require_sizes() const {
        for (const std::int64_t size :
             {n_.width, n_.inner, n_.layers, n_.heads, n_.key_heads, n_.words, n_.tokens})
            if (size < 1) fail(fmt::format("has a size of {}", size));
        if (n_.layers > most_llama2c_layers) fail(fmt::format("has {} layers", n_.layers));
        if (n_.width % n_.heads != 0 || n_.heads % n_.key_heads != 0)
            fail(fmt::format("has {} heads, {} of keys, for a width of {}", n_.heads, n_.key_heads,
                             n_.width));
        if (n_.group > 0 && (n_.width % n_.group != 0 || n_.inner % n_.group != 0))
            fail(fmt::format("has groups of {} weights, which do not divide rows of {} and {}",
                             n_.group, n_.width, n_.inner));
    }

    static std::string of_layer(std::int64_t layer, std::string_view stem) {
        return fmt::format("layers.{}.{}.weight", layer, stem);
    }

    void add_old() {
        add_matrix("tok_embeddings.weight", n_.words, n_.width);
        add_vectors("attention_norm");
        add_attention();
        add_vectors("ffn_norm");
        add_feed_forward();
        add_vector("norm.weight");
        // Cosines and sines of the rotary angles, which follow from the sizes.
        take(n_.tokens, n_.width / n_.heads / 2 * 2, sizeof(float), "the rotary angles");
        if (!n_.shared) add_matrix("output.weight", n_.words, n_.width);
    }

    void add_new() {
        add_vectors("attention_norm");
        add_vectors("ffn_norm");
        add_vector("norm.weight");
        add_matrix("tok_embeddings.weight", n_.words, n_.width);
        add_attention();
        add_feed_forward();
        if (!n_.shared) add_matrix("output.weight", n_.words, n_.width);
    }

    void add_vectors(std::string_view stem) {
        for (std::int64_t l = 0; l < n_.layers; ++l) add_vector(of_layer(l, stem));
    }
    void add_matrices(std::string_view stem, std::int64_t rows, std::int64_t columns) {
        for (std::int64_t l = 0; l < n_.layers; ++l) add_matrix(of_layer(l, stem), rows, columns);
    }
    void add_attention() {
        add_matrices("attention.wq", n_.width, n_.width);
        add_matrices("attention.wk", n_.keys(), n_.width);
        add_matrices("attention.wv", n_.keys(), n_.width);
        add_matrices("attention.wo", n_.width, n_.width);
    }
    void add_feed_forward() {
        add_matrices("feed_forward.w1", n_.inner, n_.width);
        add_matrices("feed_forward.w2", n_.width, n_.inner);
        add_matrices("feed_forward.w3", n_.inner, n_.width);
    }

    Bytes take(std::int64_t rows, std::int64_t columns, std::size_t width, std::string_view what) {
        const auto count = times(rows, columns);
        const auto bytes = count ? times(*count, std::int64_t(width)) : std::nullopt;
        if (!bytes || std::uint64_t(*bytes) > in_.left())
            fail(fmt::format("has {} bytes for {}, expected {} x {} numbers of {} bytes",
                             in_.left(), what, rows, columns, width));
        return in_.take_bytes(std::uint64_t(*bytes));
    }

    RawTensor numbers(DType type, std::int64_t rows, std::int64_t columns,
                      const std::string& name) {
        RawTensor out;
        out.dtype = type;
        out.dtype_name = tsdiag::name(type);
        out.shape = {rows, columns};
        out.strides = row_major(out.shape);
        out.bytes = take(rows, columns, bytes_of(type), name);
        out.owner = file_;
        return out;
    }

    void add_vector(const std::string& name) {
        RawTensor out = numbers(DType::f32, 1, n_.width, name);
        out.shape = {n_.width};
        out.strides = {1};
        listed_->add(name, std::move(out));
    }

    void add_matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
        if (n_.group == 0) {
            listed_->add(name, numbers(DType::f32, rows, columns, name));
            return;
        }
        RawTensor out = numbers(DType::i8, rows, columns, name);
        auto scales = std::make_shared<BlockScales>();
        scales->factors = numbers(DType::f32, rows, columns / n_.group, name);
        scales->columns = columns;
        scales->block_columns = n_.group;
        require_scales(scales->factors, name);
        out.scales = std::move(scales);
        listed_->add(name, std::move(out));
    }

    /// The first exporter of version 2 wrote all scales behind all codes, under the same header:
    /// what stands where scales are expected is then no list of positive numbers.
    void require_scales(const RawTensor& scales, const std::string& name) const {
        constexpr std::int64_t enough = 64;
        for (std::int64_t i = 0; i < std::min(enough, scales.count()); ++i) {
            const auto scale = load<float>(scales.bytes.data() + std::size_t(i) * sizeof(float));
            if (!(scale >= 0) || !std::isfinite(scale))
                fail(
                    fmt::format("tensor '{}' has the scale {}, expected positive numbers behind "
                                "its codes",
                                name, scale));
        }
    }

    std::shared_ptr<const MappedFile> file_;
    ByteReader in_;
    std::unique_ptr<ListedCheckpoint> listed_;
    Llama2cSizes n_;
};

bool sniff_llama2c(Bytes head) { return begins_as_llama2c(text_of(head)); }

std::unique_ptr<Checkpoint> open_llama2c(const std::filesystem::path& path) {
    return Llama2cReader(MappedFile::open(path)).read();
}

}  // namespace

extern const FormatEntry llama2c = {"llama2.c",
                                    "llama2.c's .bin (before version 1, versions 1 and 2)",
                                    sniff_llama2c, open_llama2c};

}  // namespace tsdiag::checkpoint
