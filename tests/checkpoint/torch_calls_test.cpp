#include "checkpoint/zip_writer.hpp"

namespace tsdiag {
namespace {

using samples::dict;
using samples::integer;
using samples::tensor;
using samples::text;
using samples::tuple;
using testing::HasSubstr;

/// torch.FUNCTION(ARGUMENTS), each part pickled.
std::string call_of(const std::string& function, const std::string& arguments) {
    const std::size_t dot = function.rfind('.');
    return "c" + function.substr(0, dot) + "\n" + function.substr(dot + 1) + "\n(" + arguments +
           "tR";
}
std::string global_of(const std::string& name) {
    const std::size_t dot = name.rfind('.');
    return "c" + name.substr(0, dot) + "\n" + name.substr(dot + 1) + "\n";
}
std::string real_of(double value) {
    std::string bytes = samples::raw<double>({value});
    std::reverse(bytes.begin(), bytes.end());
    return "G" + bytes;
}
std::string dict_of(const std::string& items) { return "}(" + items + "u"; }

const std::string whole_tensor = tensor("0", 6, 0, {2, 3}, {3, 1});
const std::string storage = "(" + text("storage") + global_of("torch.FloatStorage") + text("0") +
                            text("cpu") + integer(6) + "tQ";

std::unique_ptr<Checkpoint> file_of(const std::string& value) {
    const samples::TemporaryFolder folder;
    const std::string storages = samples::raw<float>({0, 1, 2, 3, 4, 5});
    return open_checkpoint(folder.write(
        "m.pt",
        samples::torch_zip_of(dict(text("a") + whole_tensor + text("w") + value), {storages})));
}

/// A tensor of the class of the program that saved it.
std::string of_type(const std::string& type, const std::string& state) {
    return call_of("torch._tensor._rebuild_from_type_v2",
                   global_of("torch._utils._rebuild_tensor_v2") + global_of(type) + "(" + storage +
                       integer(0) + tuple({2, 3}) + tuple({3, 1}) + "\x89" + dict_of("") + "t" +
                       state);
}
std::string with_metadata(const std::string& metadata) {
    return call_of(
        "torch._utils._rebuild_tensor_v2",
        storage + integer(0) + tuple({2, 3}) + tuple({3, 1}) + "\x89" + dict_of("") + metadata);
}
/// numpy.ndarray of two rows of three with that dtype and data.
std::string numpy_of(const std::string& function, const std::string& type,
                     const std::string& data) {
    return call_of(function, global_of("numpy.ndarray") + tuple({0}) + text("b")) + "(" +
           integer(1) + tuple({2, 3}) + call_of("numpy.dtype", text(type)) + "\x89" + data + "tb";
}

struct Foreign {
    const char* what;
    std::string value, says;
    std::vector<std::int64_t> shape;
};
void PrintTo(const Foreign& foreign, std::ostream* out) { *out << foreign.what; }

class EveryForeignTensor : public testing::TestWithParam<Foreign> {};

TEST_P(EveryForeignTensor, IsListedAndRefusedByItsName) {
    const auto file = file_of(GetParam().value);
    EXPECT_THAT(file->names(), testing::ElementsAre("a", "w"));
    const RawTensor raw = file->tensor("w");
    EXPECT_EQ(raw.shape, GetParam().shape);
    EXPECT_EQ(raw.strides.size(), raw.shape.size());
    EXPECT_EQ(bytes_of(raw.dtype), raw.dtype == DType::c64 ? 8u : 0u);
    EXPECT_EQ(raw.dtype_name, GetParam().says);
    std::vector<double> values(6);
    for (const std::string& message : {samples::message_of<NotAvailable>([&] { summarise(raw); }),
                                       samples::message_of<NotAvailable>([&] {
                                           RawTensor some = raw;
                                           some.shape = {2, 3};
                                           widen<double>(some, values);
                                       })}) {
        EXPECT_THAT(message, HasSubstr("m.pt: tensor 'w' has dtype "));
        EXPECT_THAT(message, HasSubstr(GetParam().says));
    }
    EXPECT_EQ(summarise(file->tensor("a")).sum, 15);
}

const std::string six_numbers =
    "](" + integer(1) + integer(2) + integer(3) + integer(4) + integer(5) + integer(6) + "e";
const std::string size_of_two = call_of("torch.Size", tuple({2, 3}));
const Foreign foreign_tensors[] = {
    {"coo",
     call_of("torch._utils._rebuild_sparse_tensor",
             text("torch.sparse_coo") + "(" + whole_tensor + whole_tensor + size_of_two + "t"),
     "sparse (save x.to_dense())",
     {2, 3}},
    {"coalesced",
     call_of("torch._utils._rebuild_sparse_tensor",
             text("torch.sparse_coo") + "(" + whole_tensor + whole_tensor + size_of_two + "\x88t"),
     "sparse (save x.to_dense())",
     {2, 3}},
    {"csr",
     call_of("torch._utils._rebuild_sparse_csr_tensor", text("torch.sparse_csr") + "(" +
                                                            whole_tensor + whole_tensor +
                                                            whole_tensor + size_of_two + "t"),
     "sparse (save x.to_dense())",
     {2, 3}},
    {"sizes_beyond_count",
     call_of("torch._utils._rebuild_sparse_tensor", text("torch.sparse_coo") + "(" + whole_tensor +
                                                        whole_tensor + tuple({INT64_MAX, 2}) + "t"),
     "sparse (save x.to_dense())",
     {}},
    {"meta",
     call_of("torch._utils._rebuild_meta_tensor_no_storage",
             global_of("torch.float32") + tuple({2, 3}) + tuple({3, 1}) + "\x89"),
     "meta device (save it from a device that holds its values)",
     {2, 3}},
    {"dtensor",
     call_of("torch._tensor._rebuild_from_type_v2",
             global_of("torch._utils._rebuild_wrapper_subclass") +
                 global_of("torch.distributed.tensor.DTensor") + "(" +
                 global_of("torch.distributed.tensor.DTensor") + global_of("torch.float32") +
                 tuple({2, 3}) + tuple({3, 1}) + "t" +
                 dict_of(text("_local_tensor") + whole_tensor)),
     "DTensor (save x.full_tensor())",
     {2, 3}},
    {"parameter_of_a_wrapper",
     call_of("torch._utils._rebuild_parameter",
             call_of("torch._utils._rebuild_wrapper_subclass",
                     global_of("torchao.dtypes.NF4Tensor") + global_of("torch.float32") +
                         tuple({2, 3}) + tuple({3, 1}))),
     "NF4Tensor (save the plain tensor that it stands for)",
     {2, 3}},
    {"another_library",
     call_of("fastai.torch_core._fa_rebuild_tensor", global_of("fastai.TensorImage") + "N"),
     "_fa_rebuild_tensor (save the plain tensor that it stands for)",
     {}},
    {"not_initialised",
     call_of("torch.nn.parameter.UninitializedParameter", "\x88"),
     "UninitializedParameter (run the model once before it is saved)",
     {}},
    {"quantised",
     call_of("torch._utils._rebuild_qtensor",
             "(" + text("storage") + global_of("torch.QInt8Storage") + text("0") + text("cpu") +
                 integer(6) + "tQ" + integer(0) + tuple({2, 3}) + tuple({3, 1}) + "N\x89" +
                 dict_of("")),
     "QInt8Storage (save x.dequantize())",
     {2, 3}},
    {"complex",
     call_of("torch._utils._rebuild_tensor_v2",
             "(" + text("storage") + global_of("torch.ComplexFloatStorage") + text("0") +
                 text("cpu") + integer(3) + "tQ" + integer(0) + tuple({3}) + tuple({1}) + "\x89" +
                 dict_of("")),
     "ComplexFloatStorage (save x.real)",
     {3}},
    {"masked",
     numpy_of("numpy.ma.core._mareconstruct", "f4", text("")),
     "numpy masked array (save x.filled(0))",
     {2, 3}},
    {"longdouble",
     numpy_of("numpy.core.multiarray._reconstruct", "f16", text("")),
     "numpy longdouble (save x.astype('float64'))",
     {2, 3}},
    {"objects",
     numpy_of("numpy.core.multiarray._reconstruct", "O8", six_numbers),
     "numpy objects (save x.astype('float64'))",
     {2, 3}},
    {"attribute_of_a_subclass",
     of_type("__main__.Scaled", dict_of(text("scale") + real_of(0.5))),
     "Scaled with attribute 'scale' (save the plain tensor that it stands for)",
     {2, 3}},
    {"tensor_of_a_subclass",
     of_type("__main__.Coded", dict_of(text("_hooks") + "N" + text("offset") + whole_tensor)),
     "Coded with attribute 'offset' (save the plain tensor that it stands for)",
     {2, 3}},
    {"slot_of_a_subclass",
     of_type("__main__.Coded", "(N" + dict_of(text("step") + integer(4)) + "t"),
     "Coded with attribute 'step' (save the plain tensor that it stands for)",
     {2, 3}},
    {"scale_of_a_parameter",
     call_of("torch._utils._rebuild_parameter_with_state",
             whole_tensor + "\x88" + dict_of("") + dict_of(text("weight_scale") + whole_tensor)),
     "Tensor with attribute 'weight_scale' (save the plain tensor that it stands for)",
     {2, 3}},
    {"metadata",
     with_metadata(dict_of(text("scale") + real_of(0.5))),
     "FloatStorage with 'scale' in its metadata (save x.clone())",
     {2, 3}},
    {"conjugate",
     with_metadata(dict_of(text("conj") + "\x88")),
     "FloatStorage with 'conj' in its metadata (save x.clone())",
     {2, 3}},
};
INSTANTIATE_TEST_SUITE_P(TorchCalls, EveryForeignTensor, testing::ValuesIn(foreign_tensors),
                         [](const auto& test) { return test.param.what; });

TEST(TorchCalls, ReadsSubclassesThatHaveOnlyNotes) {
    for (const std::string& value :
         {of_type("__main__.Plain", "N"), of_type("__main__.Plain", dict_of("")),
          of_type("torchvision.tv_tensors.Image", dict_of(text("requires_grad") + "\x88")),
          of_type("__main__.Plain",
                  dict_of(text("_version") + integer(3) + text("tag") + text("a note"))),
          call_of(
              "torch._utils._rebuild_parameter_with_state",
              whole_tensor + "\x88" + dict_of("") + dict_of(text("partition_dim") + integer(0))),
          with_metadata("N"), with_metadata(dict_of(text("conj") + "\x89" + text("neg") + "\x89"))})
        EXPECT_THAT(samples::values(file_of(value)->tensor("w")),
                    testing::ElementsAre(0, 1, 2, 3, 4, 5));
    EXPECT_THAT(samples::values(file_of(with_metadata(dict_of(text("neg") + "\x88")))->tensor("w")),
                testing::ElementsAre(0, -1, -2, -3, -4, -5));
}

TEST(TorchCalls, KeepsWhatIsNoTensorAsMetadata) {
    for (const std::string& value :
         {six_numbers, real_of(0.5), text("a note"), call_of("torch.device", text("cpu")),
          numpy_of("numpy.core.multiarray._reconstruct", "O8", "](" + text("b") + text("c") + "e"),
          numpy_of("numpy.core.multiarray._reconstruct", "U1", text("abcdef"))}) {
        const auto file = file_of(value);
        EXPECT_THAT(file->names(), testing::ElementsAre("a"));
        EXPECT_TRUE(file->metadata().contains("w"));
    }
}

TEST(TorchCalls, CountsAttributesThatManyTensorsShare) {
    std::string state = dict_of("");
    for (int i = 0; i < 5000; ++i) state += text(std::to_string(i)) + "Ns";
    std::string items = text("first") + of_type("__main__.Plain", state + std::string("q\0", 2));
    for (int i = 0; i < 10'000; ++i)
        items += text(std::to_string(i)) + of_type("__main__.Plain", std::string("h\0", 2));
    const samples::TemporaryFolder folder;
    EXPECT_THAT(
        samples::refusal(folder.write(
            "m.pt", samples::torch_zip_of(dict(items), {samples::raw<float>({0, 1, 2, 3, 4, 5})}))),
        HasSubstr("makes the file unpack, copy and repeat more than"));
}

}  // namespace
}  // namespace tsdiag
