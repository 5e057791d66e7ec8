pub struct Everyone;
