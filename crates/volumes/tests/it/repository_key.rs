use plimsoll_api::velero::v1::{BackupRepository, UploaderType};
use plimsoll_mover::MoverKind;
use plimsoll_volumes::repositories::{RepositoryKey, repository_name};

#[test]
fn a_repository_is_named_as_velero_names_it() {
    assert_eq!(repository_name(&RepositoryKey::new("shop", "default", MoverKind::Kopia)), "shop-default-kopia");
    assert_eq!(repository_name(&RepositoryKey::new("shop", "default", MoverKind::BuiltIn)), "shop-default-restic");
}

#[test]
fn a_repository_without_a_type_is_restics() {
    let mut repository = BackupRepository::default();
    assert_eq!(RepositoryKey::of(&repository).format, "restic");
    repository.spec.repository_type = Some(UploaderType::Kopia);
    assert_eq!(RepositoryKey::of(&repository).kind(), MoverKind::Kopia);
}
