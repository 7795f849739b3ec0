// DocumentFolder: a folder with token files of documents, for tests of packing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/packing/packed_dataset.h"
#include "tests/data/dataset_fixture.h"

namespace dstrain {

using Ids = std::vector<int32_t>;

class DocumentFolder {
 public:
  // Writes a token file of these documents, and where they begin.
  std::string write(const std::string& name, const std::vector<std::vector<uint16_t>>& documents) {
    std::string ids, begins;
    uint64_t at = 0;
    const auto add = [](std::string& to, const auto& value) {
      to.append(reinterpret_cast<const char*>(&value), sizeof(value));
    };
    for (const std::vector<uint16_t>& document : documents) {
      add(begins, at);
      for (const uint16_t id : document) add(ids, id);
      at += document.size();
    }
    add(begins, at);
    dir_.write(name, ids);
    dir_.write(name + ".documents", begins);
    return path(name);
  }
  // Writes which of a file's tokens count in the loss: a digit for each.
  void write_targets(const std::string& name, std::string counts) {
    for (char& c : counts) c = static_cast<char>(c - '0');
    dir_.write(name + ".targets", counts);
  }
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  void write_text(const std::string& name, const std::string& text) { dir_.write(name, text); }

  Job job(const std::string& path, int64_t length, Packing packing) const {
    Job job = text_job(path, length, DataFormat::tokens);
    job.model.set_vocabulary(100);
    job.data.packing = packing;
    return job;
  }

 private:
  TempDir dir_;
};

}  // namespace dstrain
