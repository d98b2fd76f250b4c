//! Object storage: S3, GCS, Azure and directories behind one type.
