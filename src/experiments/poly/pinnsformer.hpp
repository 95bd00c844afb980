#pragma once
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/random.hpp"

/// PINNsformer [PINN]: a transformer u(x, t) that is to solve a differential equation.
namespace tsdiag::experiment_list {

struct PinnsformerSizes {
    Index layers = 1;  ///< of the encoder, and of the decoder
    Index d = 32, heads = 2, ffn = 256, hidden = 512;
    std::string attention = "softmax";
    AttentionOptions options = {};
};

/// The network of the published code: an encoder, a decoder that attends to it, no norms.  A point
/// is a pseudo-sequence of tokens (x, t):
///
///     e = (x, t) W^T + b
///     encoder: h = e, h += A(w(h), w(h)), h += F(w(h)), for each layer; m = w(h)
///     decoder: h = e, h += A(w(h), m),    h += F(w(h)), for each layer; u = F(w(h))
///
/// w(h) = omega1 sin h + omega2 cos h with two learned numbers at each place ("Wavelet"); A(q, m)
/// is attention of several heads with logits q k^T / sqrt(d_h); F = W3 w(W2 w(W1 h)).
class Pinnsformer {
  public:
    /// Throws `UsageError` where heads do not divide d, and for options that the attention refuses.
    explicit Pinnsformer(PinnsformerSizes sizes);

    /// Names, those of PyTorch's state_dict, and shapes.  A learned scale of an attention is
    /// `encoder.layers.0.attn.scale`.
    const std::vector<std::pair<std::string, Shape>>& parameters() const { return parameters_; }
    Index count() const;  ///< of numbers in all parameters
    /// As the published code draws them: Xavier's uniform law, of queries, keys and values as one
    /// matrix of 3d rows; biases 0.01, theirs 0; omegas 1.  A learned scale has its start.
    std::vector<double> draw(const Rng& rng) const;

    using Parameters = std::map<std::string, Tensor, std::less<>>;
    /// In float64, from all their numbers in the order of `parameters`.
    Parameters tensors(const Backend& backend, std::span<const double> numbers) const;
    /// u of every token, (s, L, 1), of the points (s, L, 2).
    Tensor forward(const Parameters& with, const Tensor& points) const;

  private:
    void add_linear(const std::string& name, Index out, Index in);
    void add_wave(const std::string& name);
    void add_feed(const std::string& name, Index in, Index inner, Index out);
    void add_layer(const std::string& name);
    Tensor attend(const Parameters& with, const std::string& name, const Tensor& q,
                  const Tensor& m) const;

    PinnsformerSizes sizes_;
    std::vector<LearnedParameter> learned_;
    std::vector<std::pair<std::string, Shape>> parameters_;
};

}  // namespace tsdiag::experiment_list
