// ZipFile: writes small archives as torch.export.save does (stored entries, sizes in the directory alone), and damaged
// ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

class ZipFile {
 public:
  // What an entry of the directory says that the writer would not; -1: as it is.
  struct Said {
    int64_t method = -1, flags = -1, bytes = -1, packed = -1, local = -1;
    std::string local_name = {};
    bool extra64 = false;  // sizes and offset in the extra field of 64 bits
  };

  // Adds an entry. Its data begin at a multiple of 64 bytes.
  ZipFile& add(const std::string& name, std::string_view data) { return add(name, data, Said()); }
  ZipFile& add(const std::string& name, std::string_view data, const Said& said) {
    const auto local = static_cast<int64_t>(bytes_.size());
    const std::string& local_name = said.local_name.empty() ? name : said.local_name;
    const size_t filling = (64 - (bytes_.size() + 30 + local_name.size() + 4) % 64) % 64 + 4;
    bytes_ += number(0x04034b50, 4) + number(0, 2) +
              number(said.flags < 0 ? 0x808 : said.flags, 2) +
              number(said.method < 0 ? 0 : said.method, 2) + std::string(16, '\0') +
              number(static_cast<int64_t>(local_name.size()), 2) +
              number(static_cast<int64_t>(filling), 2) + local_name + "FB" +
              number(static_cast<int64_t>(filling) - 4, 2) + std::string(filling - 4, 'Z');
    bytes_ += data;
    const int64_t size = said.bytes < 0 ? static_cast<int64_t>(data.size()) : said.bytes,
                  packed = said.packed < 0 ? size : said.packed,
                  at = said.local < 0 ? local : said.local;
    const std::string extra = said.extra64 ? number(1, 2) + number(24, 2) + number(size, 8) +
                                                 number(packed, 8) + number(at, 8)
                                           : "";
    const auto field = [&](int64_t value) { return number(said.extra64 ? 0xffffffff : value, 4); };
    directory_ += number(0x02014b50, 4) + number(0, 4) +
                  number(said.flags < 0 ? 0x808 : said.flags, 2) +
                  number(said.method < 0 ? 0 : said.method, 2) + std::string(8, '\0') +
                  field(packed) + field(size) + number(static_cast<int64_t>(name.size()), 2) +
                  number(static_cast<int64_t>(extra.size()), 2) + std::string(10, '\0') +
                  field(at) + name + extra;
    ++entries_;
    return *this;
  }

  // Returns the archive. With `in64` its end has the records of 64 bits. `entries` is how many it says to have.
  std::string bytes(bool in64 = false, int64_t entries = -1) const {
    if (entries < 0) entries = entries_;
    const auto begin = static_cast<int64_t>(bytes_.size()),
               size = static_cast<int64_t>(directory_.size());
    std::string end;
    if (in64)
      end = number(0x06064b50, 4) + number(44, 8) + std::string(12, '\0') + number(entries, 8) +
            number(entries, 8) + number(size, 8) + number(begin, 8) + number(0x07064b50, 4) +
            number(0, 4) + number(begin + size, 8) + number(1, 4);
    return bytes_ + directory_ + end + number(0x06054b50, 4) + number(0, 4) +
           number(in64 ? 0xffff : entries, 2) + number(in64 ? 0xffff : entries, 2) +
           number(in64 ? 0xffffffff : size, 4) + number(in64 ? 0xffffffff : begin, 4) +
           number(0, 2);
  }

  // Returns `value` in `width` bytes, the lowest first.
  static std::string number(int64_t value, int width) {
    std::string text;
    for (int i = 0; i < width; ++i)
      text += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
    return text;
  }

 private:
  std::string bytes_, directory_;
  int64_t entries_ = 0;
};

}  // namespace dstrain
