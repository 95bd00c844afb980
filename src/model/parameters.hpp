#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convolution.hpp"
#include "linear.hpp"
#include "norm.hpp"

/// Parameters declared once: what lists those of layers and of class attention, and what loads
/// them, runs the same declaration.
namespace tsdiag::model {

/// Receives parameters by name and shape, each with the tensor that holds it.
class Parameters {
  public:
    virtual ~Parameters() = default;

    void declare(Parameter parameter, Tensor& into) { receive(std::move(parameter), into); }
    void matrix(const std::string& name, Tensor& into, Index rows, Index cols) {
        receive({name, {1, rows, cols}}, into);
    }
    void vector(const std::string& name, Tensor& into, Index length) {
        receive({name, {1, 1, length}, true}, into);
    }
    /// `stem`.weight (out, in) and, with `bias`, `stem`.bias.
    void linear(const std::string& stem, Linear& into, Index out, Index in, bool bias) {
        matrix(stem + ".weight", into.weight, out, in);
        if (bias) vector(stem + ".bias", into.bias, out);
    }
    /// Of NormKind::scale `stem`.g, of layer and rms norms `stem`.weight, of the former
    /// `stem`.bias.
    void norm(const std::string& stem, Norm& into, NormKind kind, Index width, bool bias = true) {
        if (kind == NormKind::scale) vector(stem + ".g", into.g, 1);
        if (kind != NormKind::layer && kind != NormKind::rms) return;
        vector(stem + ".weight", into.weight, width);
        if (bias && kind == NormKind::layer) vector(stem + ".bias", into.bias, width);
    }
    void batch_norm(const std::string& stem, BatchNorm& into, Index width) {
        vector(stem + ".weight", into.weight, width);
        vector(stem + ".bias", into.bias, width);
        vector(stem + ".mean", into.mean, width);
        vector(stem + ".variance", into.variance, width);
    }

    /// Parameters that are read whenever they are used, as those of an expert: what `declaration`
    /// fills.
    template <class T>
    std::function<T()> on_demand(std::function<void(T&, Parameters&)> declaration) {
        const std::shared_ptr<Parameters> later = for_later();
        if (!later) {  // they are listed with the others
            T unused;
            declaration(unused, *this);
            return {};
        }
        return [declaration = std::move(declaration), later] {
            T found;
            declaration(found, *later);
            return found;
        };
    }

  protected:
    virtual void receive(Parameter parameter, Tensor& into) = 0;
    /// One that receives the same when this is gone; null: none is needed.
    virtual std::shared_ptr<Parameters> for_later() const { return nullptr; }
};

/// Lists what is declared, `at` before each name.
class ListedParameters final : public Parameters {
  public:
    explicit ListedParameters(std::vector<Parameter>& list, std::string at = {})
        : list_(list), at_(std::move(at)) {}

  private:
    void receive(Parameter parameter, Tensor&) override {
        parameter.name.insert(0, at_);
        list_.push_back(std::move(parameter));
    }
    std::vector<Parameter>& list_;
    std::string at_;
};

/// Loads what is declared, `at` before each name.  One that `weights` lacks is a `FormatError`.
class LoadedParameters final : public Parameters {
  public:
    LoadedParameters(const Weights& weights, std::string at)
        : weights_(weights), at_(std::move(at)) {}
    /// Of the tensors loaded so far.
    double bytes() const { return bytes_; }

  private:
    void receive(Parameter parameter, Tensor& into) override {
        into = weights_.get(at_ + parameter.name);
        bytes_ += double(into.shape().count()) * double(bytes_of(into.type()));
    }
    std::shared_ptr<Parameters> for_later() const override {
        return std::make_shared<LoadedParameters>(weights_, at_);
    }
    const Weights& weights_;
    std::string at_;
    double bytes_ = 0;
};

}  // namespace tsdiag::model
