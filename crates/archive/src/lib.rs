//! The backup on disk: bucket layout, tarball and metadata codecs.
