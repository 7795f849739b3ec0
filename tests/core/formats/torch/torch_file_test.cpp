#include "runtime/core/formats/torch/torch_file.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "runtime/core/error.h"
#include "tests/support/pickle/pickle_text.h"
#include "tests/support/source_file.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
using Make = PickleText;

std::string data_file(const std::string& name) {
  return source_file("tests/core/formats/torch/data/" + name);
}

// Returns the elements of a tensor of a file, read in pieces of two.
std::string elements_of(const TorchFile& file, const TorchTensor& tensor) {
  const InputFile input(file.path(), "the file");
  const TorchTensorReader reader(input, tensor);
  std::string bytes(static_cast<size_t>(tensor.elements() * tensor.type.bytes), '\0');
  for (int64_t i = 0; i < tensor.elements(); i += 2)
    reader.read(i, std::min<int64_t>(2, tensor.elements() - i),
                bytes.data() + i * tensor.type.bytes);
  return bytes;
}

template <class T>
std::vector<T> values_of(const TorchFile& file, const std::string& name) {
  const std::string bytes = elements_of(file, file.tensor(file.root().find(name).value()));
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Returns what is wrong with a tensor in a file with a storage of 24 bytes; empty if nothing is.
std::string tensor_fault(const std::string& value) {
  const TempDir dir;
  const std::string path = dir.write("a.pt", Make::file(Make::of(value), {std::string(24, 'x')}));
  const TorchFile file(path);
  try {
    const TorchTensor tensor = file.tensor(file.root());
    elements_of(file, tensor);
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Contains("a.pt: archive/data.pkl, byte "));
    return e.what();
  }
  return {};
}

std::string file_fault(const std::string& name, const std::string& bytes) {
  const TempDir dir;
  const std::string path = dir.write(name, bytes);
  try {
    const TorchFile file(path);
  } catch (const UserError& e) {
    CHECK_THAT(e.what(), Contains(name));
    return e.what();
  }
  return {};
}

// data/*.pt are what PyTorch 2.15 writes (torch.save with pickle_protocol 2 and 4).
TEST_CASE("tensors that PyTorch has saved have their types, sizes and values") {
  const TorchFile file(data_file(GENERATE("values_2.pt", "values_4.pt")));
  using Floats = std::vector<float>;
  CHECK(values_of<float>(file, "f32") == Floats{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  CHECK(values_of<float>(file, "columns") == Floats{0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11});
  CHECK(values_of<float>(file, "part") == Floats{5, 6, 9, 10});
  CHECK(values_of<uint16_t>(file, "bf16") == std::vector<uint16_t>{0x3f80, 0xbf00});
  CHECK(values_of<uint16_t>(file, "f16") == std::vector<uint16_t>{0x7bff, 1});
  CHECK(values_of<double>(file, "f64") == std::vector<double>{0.1});
  CHECK(values_of<int64_t>(file, "steps") == std::vector<int64_t>{7});
  CHECK(values_of<uint8_t>(file, "mask") == std::vector<uint8_t>{1, 0});
  CHECK(values_of<float>(file, "scalar") == Floats{2.5});
  CHECK(values_of<float>(file, "empty").empty());
  CHECK(values_of<float>(file, "parameter") == Floats{4});
  CHECK(values_of<float>(file, "marked") == Floats{5});
  CHECK(values_of<float>(file, "with_attributes") == Floats{6});
  CHECK(values_of<uint8_t>(file, "float8") == std::vector<uint8_t>{0x38, 0x40});
  const auto tensor = [&](const char* name) { return file.tensor(*file.root().find(name)); };
  CHECK(tensor("columns").sizes == std::vector<int64_t>{4, 3});
  CHECK_FALSE(tensor("columns").is_contiguous());
  CHECK(tensor("empty").sizes == std::vector<int64_t>{0, 3});
  CHECK(tensor("scalar").sizes.empty());
  CHECK(tensor("tied").storage == tensor("tied_too").storage);
  CHECK(tensor("mask").type.name == "BOOL");
  CHECK(tensor("float8").type.name == "F8_E4M3");
  CHECK(file.root().state().find("_metadata"));
}

TEST_CASE("objects beside tensors are read, and used as none") {
  const TorchFile file(data_file("objects.pt"));
  const PickleValue root = file.root();
  CHECK(root.find("args")->is_named("argparse.Namespace"));
  CHECK(root.find("args")->state().find("lr")->real() == 0.1);
  CHECK(root.find("epoch")->integer() == 3);
  CHECK(root.find("large")->is(PickleKind::large_integer));
  CHECK(root.find("negative")->integer() == -300);
  CHECK(root.find("long")->integer() == int64_t{1} << 40);
  CHECK((*root.find("size"))[1].integer() == 4);
  CHECK(root.find("device")->is_named("torch.device"));
  CHECK(root.find("dtype")->is_named("torch.float32"));
  CHECK(root.find("text")->text() == "\u00e9");
  CHECK(root.find("set")->is(PickleKind::object));  // set([1]), as protocol 2 writes it
  CHECK(root.find("yes")->integer() == 1);
  for (const char* name : {"args", "epoch", "none"}) {
    CHECK_FALSE(TorchFile::is_tensor(*root.find(name)));
    CHECK_THROWS_WITH(file.tensor(*root.find(name)),
                      Contains("expected a tensor with its values, got "));
  }
  CHECK_THROWS_WITH(file.tensor(*root.find("expanded")), Contains("several elements at one place"));
  CHECK_THROWS_WITH(file.tensor(*root.find("complex")), Contains("got torch.ComplexFloatStorage"));
}

TEST_CASE("files of other layouts are refused with what to do") {
  CHECK_THROWS_WITH(TorchFile(data_file("legacy.pt")),
                    Contains("before 1.6") && Contains("torch.save(torch.load("));
  CHECK_THAT(file_fault("a.pkl", Make::of("N")), Contains("it is a pickle by itself"));
  CHECK_THAT(file_fault("a.pt", "version https://git-lfs.github.com/spec/v1\noid"),
             Contains("Git LFS"));
  CHECK_THAT(file_fault("a.pt", ""), Contains("a.pt"));
  CHECK_THAT(file_fault("a.pt", "text"), Contains("is not an archive of torch.save"));
  CHECK_THAT(file_fault("a.pt", ZipFile().add("a/b", "c").bytes()),
             Contains("without a pickle \"NAME/data.pkl\""));
  CHECK_THAT(file_fault("a.pt", ZipFile().add("a/data.pkl", "c").add("b/data.pkl", "c").bytes()),
             Contains("several pickles"));
  CHECK_THAT(
      file_fault("a.pt",
                 ZipFile().add("a/data.pkl", Make::of("N")).add("a/constants.pkl", "c").bytes()),
      Contains("TorchScript"));
  CHECK_THAT(
      file_fault("a.pt",
                 ZipFile().add("a/data.pkl", Make::of("N")).add("a/byteorder", "big").bytes()),
      Contains("the byte order \"big\""));
  CHECK_THAT(file_fault("a.pt", ZipFile().add("a/data.pkl", "N").bytes()),
             Contains("a.pt: a/data.pkl, byte 0"));
}

TEST_CASE("a tensor that is not within its storage, or has no sizes, is refused") {
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(tensor_fault(Make::tensor({})).empty());
  CHECK(tensor_fault(Make::tensor({.sizes = {3, 2}, .strides = {1, 3}})).empty());
  CHECK_THAT(tensor_fault(Make::tensor({.storage = "1"})), Contains("lacks the storage \"1\""));
  CHECK_THAT(tensor_fault(Make::tensor({.storage = "../x"})), Contains("lacks the storage"));
  CHECK_THAT(tensor_fault(Make::tensor({.type = "QInt8Storage"})),
             Contains("got torch.QInt8Storage"));
  CHECK_THAT(tensor_fault(Make::tensor({.elements = 7})),
             Contains("stated to have 7 elements of 4 bytes, and has 24"));
  CHECK_THAT(tensor_fault(Make::tensor({.elements = most})), Contains("stated to have"));
  CHECK_THAT(tensor_fault(Make::tensor({.elements = -6})), Contains("an integer of at least 0"));
  CHECK_THAT(tensor_fault(Make::tensor({.offset = 1})), Contains("reaches out of its storage"));
  CHECK_THAT(tensor_fault(Make::tensor({.offset = most})), Contains("reaches out of its storage"));
  CHECK_THAT(tensor_fault(Make::tensor({.offset = -1})), Contains("where a tensor begins"));
  CHECK_THAT(tensor_fault(Make::tensor({.elements = 5})), Contains("reaches out of its storage"));
  CHECK_THAT(tensor_fault(Make::tensor({.sizes = {2, -3}})), Contains("the sizes of a tensor"));
  CHECK_THAT(tensor_fault(Make::tensor({.strides = {-3, 1}})), Contains("the strides of a tensor"));
  CHECK_THAT(tensor_fault(Make::tensor({.sizes = {2, 3, 1}})), Contains("3 sizes and 2 strides"));
  CHECK_THAT(tensor_fault(Make::tensor({.sizes = {most, most}})),
             Contains("sizes of a tensor overflow"));
  CHECK_THAT(tensor_fault(Make::tensor({.sizes = {most, 0}})),
             Contains("sizes of a tensor overflow"));
  CHECK_THAT(tensor_fault(Make::tensor({.sizes = {2, 2}, .strides = {most, most}})),
             Contains("reaches out"));
  CHECK_THAT(tensor_fault(Make::tensor({.sizes = {1 << 20, 3}, .strides = {0, 1}})),
             Contains("several elements at one place"));
  CHECK_THAT(tensor_fault(Make::tensor(
                 {.sizes = std::vector<int64_t>(33, 1), .strides = std::vector<int64_t>(33, 1)})),
             Contains("at most 32"));
  const auto call = [](const std::vector<std::string>& arguments) {
    return Make::call(Make::name("torch._utils", "_rebuild_tensor_v2"), arguments);
  };
  CHECK_THAT(tensor_fault(call({})), Contains("lacks its storage"));
  CHECK_THAT(tensor_fault(call({"N", "N", "N", "N"})), Contains("lacks its storage"));
  CHECK_THAT(tensor_fault(call({"NQ", "N", "N", "N"})), Contains("a storage lacks its type"));
  CHECK_THAT(tensor_fault(call({Make::storage({}), "N", "N", "N"})),
             Contains("where a tensor begins"));
  CHECK_THAT(tensor_fault(Make::call(Make::name("torch._utils", "_rebuild_tensor_v3"),
                                     {Make::storage({}), Make::integer(0), ")", ")"})),
             Contains("lacks its storage"));
  // A parameter of a parameter of ....
  std::string parameter = Make::tensor({});
  for (int i = 0; i < 5; ++i)
    parameter = Make::call(Make::name("torch._utils", "_rebuild_parameter"), {parameter, "N"});
  CHECK_THAT(tensor_fault(parameter), Contains("expected a tensor with its values"));
}

}  // namespace
}  // namespace dstrain
