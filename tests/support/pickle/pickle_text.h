// PickleText: makes pickles as torch.save does (protocol 2), and others that no program would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/zip_file.h"

namespace dstrain {

// Each function returns opcodes that push one value.
struct PickleText {
  static std::string text(std::string_view value) {
    return "X" + ZipFile::number(static_cast<int64_t>(value.size()), 4) + std::string(value);
  }
  static std::string integer(int64_t value) { return "\x8a\x08" + ZipFile::number(value, 8); }
  static std::string name(std::string_view module, std::string_view name) {
    return "c" + std::string(module) + "\n" + std::string(name) + "\n";
  }
  static std::string tuple(const std::vector<std::string>& values) {
    return "(" + joined(values) + "t";
  }
  static std::string numbers(const std::vector<int64_t>& values) {
    std::vector<std::string> texts;
    for (const int64_t value : values) texts.push_back(integer(value));
    return tuple(texts);
  }
  // `pairs`: keys and values in turn.
  static std::string dict(const std::vector<std::string>& pairs) {
    return "}(" + joined(pairs) + "u";
  }
  static std::string call(const std::string& callable, const std::vector<std::string>& arguments) {
    return callable + tuple(arguments) + "R";
  }

  // A tensor as torch.save writes it.
  struct Tensor {
    std::string storage = "0", type = "FloatStorage";
    int64_t elements = 6, offset = 0;  // of the storage, and where the tensor begins
    std::vector<int64_t> sizes{2, 3}, strides{3, 1};
  };
  static std::string storage(const Tensor& t) {
    return tuple({text("storage"), name("torch", t.type), text(t.storage), text("cpu"),
                  integer(t.elements)}) +
           "Q";
  }
  static std::string tensor(const Tensor& t) {
    return call(name("torch._utils", "_rebuild_tensor_v2"),
                {storage(t), integer(t.offset), numbers(t.sizes), numbers(t.strides), "\x89",
                 call(name("collections", "OrderedDict"), {})});
  }
  // The whole pickle of a value.
  static std::string of(const std::string& value) { return "\x80\x02" + value + "."; }

  // A file of torch.save with that pickle and these storages, "0", "1", ....
  static std::string file(const std::string& pickle, const std::vector<std::string>& storages) {
    ZipFile zip;
    zip.add("archive/data.pkl", pickle).add("archive/byteorder", "little");
    for (size_t i = 0; i < storages.size(); ++i)
      zip.add("archive/data/" + std::to_string(i), storages[i]);
    return zip.add("archive/version", "3\n").bytes();
  }

 private:
  static std::string joined(const std::vector<std::string>& values) {
    std::string all;
    for (const std::string& value : values) all += value;
    return all;
  }
};

}  // namespace dstrain
