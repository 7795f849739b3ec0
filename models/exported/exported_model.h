// ExportedModel: a model that torch.export.save has written: its program and its tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/exported/graph/graph.h"
#include "models/exported/read/stored_tensors.h"
#include "runtime/core/formats/zip_archive.h"

namespace dstrain::exported {

struct ExportedModel {
  ZipArchive archive;
  Graph graph;
  // By name; they refer to entries of the archive, which must not be changed. Each parameter, buffer and constant of the
  // graph is there with its type and sizes.
  std::vector<StoredTensor> tensors;

  // Returns the tensor of that name, or null.
  const StoredTensor* find(std::string_view name) const;
};

// Reads an archive but for the values of its tensors. Throws UserError for what is none, for the layout of PyTorch before
// 2.9, and as read_graph() and read_stored_tensors() do.
ExportedModel read_exported(const std::string& path);

}  // namespace dstrain::exported
