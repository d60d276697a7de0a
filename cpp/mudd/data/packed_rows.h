// Sequences packed from whole documents, with the algorithm of TokenFormer's loader.
//
// G workers share the records of an infinite stream of epochs. Record j of the stream, j = w + p G for place p of
// worker w, is document cipher(seed + j / N)(j mod N). A worker puts its documents first-fit into the sequences of
// a batch; a document that does not fit opens its next batch. Turn t is batch t / G of worker t mod G. If the data
// end, the last batch of a worker has the remaining documents, and the turns of an ended worker are skipped: the
// batches are the remaining turns, in order. The start of a batch depends on all earlier ones, so the starts are
// computed once, in order, and kept in a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mudd/data/index_cipher.h"
#include "mudd/data/row_plan.h"

namespace mudd {

struct PackOptions {
  int64_t seq_len = 0;
  int64_t batch_size = 0;
  int64_t workers = 1;
  int64_t epochs = 0;  // 0: unlimited
  uint32_t seed = 0;
  bool shuffle = true;
  std::string index;  // file of the starts; empty: none. Its name encodes documents and options.
};

class PackedRows final : public RowPlan {
 public:
  PackedRows(DocumentTable documents, PackOptions options);

  // Return the sequences of the batches that start in the first epoch.
  int64_t rows() const override;
  void pieces(int64_t sample, std::vector<TokenRange>& out) override;

  // Return the place of a batch's first document in its worker's stream; Error if the data end before it.
  int64_t start_of(int64_t batch);

  // The position of a stream before a batch: the turn of the batch, and the places of the workers of that turn
  // and of the following ones. The place of an ended worker is the count of its documents.
  struct Cursor {
    int64_t turn = 0;
    std::vector<int64_t> places;
  };
  Cursor cursor(int64_t batch);

  // Return the batches before the data end, including the last one of each worker; Error for unlimited data.
  int64_t batches();

 private:
  bool extend();                   // packs one more turn; false if all workers have ended
  int64_t turn_of(int64_t batch);  // Error if the data end before the batch
  int64_t documents_of(int64_t worker) const;
  void add_start(int64_t place);
  int64_t pack(int64_t worker, int64_t place);
  int64_t document_at(int64_t worker, int64_t place);
  int64_t first_fit(int64_t length);
  void take_free(size_t row, int64_t length);
  void load_index();
  void keep_index(size_t part);
  void save_index() const;

  DocumentTable documents_;
  PackOptions options_;
  std::vector<int64_t> starts_;             // of turns 0, 1, ...; -1: the worker has ended
  std::vector<int64_t> tail_;               // turns of batches after the first skipped turn
  int64_t before_tail_ = 0;                 // batches before it; turn and batch are equal there
  size_t saved_ = 0;                        // starts in the file
  int64_t packed_ = -1;                     // the turn that `rows_` contains
  std::vector<std::vector<int64_t>> rows_;  // documents of each row
  size_t leaves_ = 1;
  std::vector<int64_t> free_;  // a tree of the largest free length below each node; its leaves start at `leaves_`
  int64_t cipher_epoch_ = -1;
  IndexCipher cipher_{1, 0};
};

}  // namespace mudd
