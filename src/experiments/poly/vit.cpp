#include "vit.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tsdiag/error.hpp"

namespace tsdiag::experiment_list {

std::string PolyActivation::name() const {
    if (power == 0) return "softmax";
    const std::string x = power == 1 ? "x" : fmt::format("x^{}", power);
    return x + (scale == Scale::none    ? ""
                : scale == Scale::fixed ? " + fixed scale"
                                        : " + dynamic scale");
}

std::string PolyActivation::options(Index count) const {
    if (power == 0) return "";
    const double c = 1 / std::sqrt(double(count));
    return fmt::format(",p={},{}", power,
                       scale == Scale::none    ? "scale=none"
                       : scale == Scale::fixed ? fmt::format("scale={:.17g}", c)
                                               : fmt::format("scale=learned,start={:.17g}", c));
}

std::array<PolyActivation, 3> poly_activations(Index power) {
    using enum PolyActivation::Scale;
    return {PolyActivation{power, none}, PolyActivation{power, fixed},
            PolyActivation{power, dynamic}};
}

std::optional<double> learned_scale(const Outcome& run, Index count) {
    Moments logs;
    for (const auto& [name, tensor] : run.parameters)
        if (name.ends_with("attn.scale"))
            logs.add(
                std::log10(std::abs(tensor.to_host<double>().front()) * std::sqrt(double(count))));
    return logs.count() > 0 ? std::optional(logs.mean()) : std::nullopt;
}

void vit_recipe(TrainOptions& options) {
    options.schedule.warmup = std::llround(double(options.steps) * 10000 / 93835);
    options.adam.decay = 0.3;
    options.dropout = 0.1;
    options.clip = 1;
}

std::string vit(const ExperimentSetting& setting, const std::string& patch,
                const std::string& attention) {
    return fmt::format("random:deit-tiny,layers={},d={},heads={},image={},patch={},{}",
                       setting.text("layers"), setting.text("d"), setting.text("heads"),
                       setting.text("image"), patch, attention);
}

Index patches_of(const ExperimentSetting& setting, const std::string& patch) {
    const Index image = setting.count("image");
    const std::size_t cross = patch.find('x');
    const Index rows = Index(std::stod(patch.substr(0, cross))),
                cols =
                    cross == std::string::npos ? rows : Index(std::stod(patch.substr(cross + 1)));
    if (image % rows != 0 || image % cols != 0)
        throw UsageError(fmt::format("{}: the patch size {} is not a divisor of image={}.",
                                     setting.entry().name, patch, image));
    return (image / rows) * (image / cols);
}

std::string gratings(const ExperimentSetting& setting) {
    return "patterns:" + setting.text("classes");
}

}  // namespace tsdiag::experiment_list
