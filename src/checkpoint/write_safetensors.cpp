#include <algorithm>

#include "written_file.hpp"

namespace tsdiag {

void write_safetensors(const std::filesystem::path& file, std::span<const NamedArray> arrays,
                       const Json& metadata) {
    using checkpoint::is_double;
    checkpoint::check_names(arrays, "__metadata__");
    std::vector<const NamedArray*> order;
    for (const NamedArray& array : arrays) order.push_back(&array);
    std::sort(order.begin(), order.end(), [](const NamedArray* a, const NamedArray* b) {
        if (is_double(*a) != is_double(*b))
            return is_double(*a);  // wider elements first, for alignment
        return a->name < b->name;
    });

    Json::Object header;
    if (metadata.is_object() && !metadata.object().empty()) {
        Json::Object texts;  // the format allows nothing but strings
        for (const auto& [key, value] : metadata.object())
            texts.emplace_back(key, value.is_string() ? value : Json(value.dump()));
        header.emplace_back("__metadata__", std::move(texts));
    }
    std::uint64_t at = 0;
    for (const NamedArray* array : order) {
        const std::uint64_t end = at + checkpoint::bytes_of_array(*array).size();
        Json::Array shape(array->shape.begin(), array->shape.end());
        header.emplace_back(array->name,
                            Json::Object{{"dtype", is_double(*array) ? "F64" : "F32"},
                                         {"shape", std::move(shape)},
                                         {"data_offsets", Json::Array{Json(at), Json(end)}}});
        at = end;
    }
    std::string text = Json(std::move(header)).dump();
    text.append((8 - text.size() % 8) % 8, ' ');

    checkpoint::WrittenFile out(file);
    std::string length;
    checkpoint::append<std::uint64_t>(length, text.size());
    out.write(length);
    out.write(text);
    for (const NamedArray* array : order) out.write(checkpoint::bytes_of_array(*array));
    out.finish();
}

}  // namespace tsdiag
