// ZipArchive: the entries of a zip file that stores them as they are, which is how PyTorch and NumPy write archives. Files may be
// hostile: what the central directory states is checked against the file before anything is allocated or read, and in an
// archive that opens, entries have plain names, each once, and lie beside each other between the start of the file and its
// directory. Sizes come from the central directory, since PyTorch's local headers say 0. Checksums are not compared:
// PyTorch can be told to write none. Errors are UserErrors that name the file and the entry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/files/input_file.h"

namespace dstrain {

// A file in the archive: its name, and where its bytes lie in the archive.
struct ZipEntry {
  std::string name;
  int64_t offset = 0, bytes = 0;
};

// Which archives a caller expects, for messages.
struct ZipOrigin {
  std::string_view what;        // "the exported model"
  std::string_view writer;      // "torch.export.save"
  std::string_view uncompress;  // what to do with a compressed one: "do not pack it anew"
};

class ZipArchive {
 public:
  // Opens the archive and reads its directory. Throws UserError if it is not a zip file, or one with entries that are
  // compressed, encrypted, of one name, of a name that leads elsewhere, outside of the file, or over each other.
  ZipArchive(const std::string& path, const ZipOrigin& origin);

  const std::string& path() const { return file_.path(); }
  // Returns the entries by name.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  // Returns the entry of that name, or null.
  const ZipEntry* find(std::string_view name) const;
  // Returns the bytes of an entry. Throws UserError if there are more than `limit`, or the file has become shorter.
  std::string read(const ZipEntry& entry, int64_t limit) const;
  // Reads bytes [offset, offset + bytes) of an entry. Throws UserError if the entry ends before.
  void read_at(const ZipEntry& entry, void* data, int64_t bytes, int64_t offset) const;

 private:
  InputFile file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace dstrain
