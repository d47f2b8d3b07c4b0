"""Writes a folder as tensorflow_datasets prepares one, for tests of those who read it."""

import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordWriter
from PIL import Image


def write(folder, splits, num_classes):
    """Fills <data_dir>/<name>/<version>.

    Args:
      folder: that path; it is made.
      splits: name -> (images uint8 [N, H, W, C], labels).
      num_classes: K.
    """
    folder.mkdir(parents=True)
    shape = splits["train"][0].shape[1:]
    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=shape),
            "label": tfds.features.ClassLabel(num_classes=num_classes),
        }
    )
    infos = [_write_split(folder, name, *arrays, features) for name, arrays in splits.items()]
    tfds.folder_dataset.write_metadata(
        data_dir=folder,
        features=features,
        split_infos=infos,
        version=folder.name,
        check_data=False,
    )


def _write_split(folder, split, images, labels, features):
    template = tfds.core.ShardedFileTemplate(
        data_dir=folder,
        dataset_name=folder.parent.name,
        split=split,
        filetype_suffix="array_record",
    )
    path = template.sharded_filepath(shard_index=0, num_shards=1)
    writer = ArrayRecordWriter(str(path), "group_size:1")
    num_bytes = 0
    for image, label in zip(images, labels, strict=True):
        picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
        example = features.encode_example({"image": picture, "label": int(label)})
        record = features.serialize_example(example)
        num_bytes += len(record)
        writer.write(record)
    writer.close()
    return tfds.core.SplitInfo(
        name=split,
        shard_lengths=[len(images)],
        num_bytes=num_bytes,
        filename_template=template,
    )
